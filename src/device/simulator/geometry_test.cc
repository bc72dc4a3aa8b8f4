#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "device/simulator/profiles.h"
#include "device/simulator/simulator_fixture.h"
#include "gpu/catalogue.h"

namespace divvy::device::simulator {
namespace {

// The library's answers about every GPU of the catalogue, held against the
// catalogue itself.
class GeometryTest : public SimulatorTest, public ::testing::WithParamInterface<std::size_t> {
 protected:
  const gpu::GpuModel& model() const { return gpu::Catalogue()[GetParam()]; }
};

std::string ModelName(const ::testing::TestParamInfo<std::size_t>& info) {
  std::string name = gpu::Catalogue()[info.param].name;
  std::erase(name, '-');
  return name;
}

TEST_P(GeometryTest, EveryProfileIsReportedAndCreatedAtEveryStart) {
  Start(model().name + "+mig");
  for (const gpu::MigProfile& profile : model().profiles) {
    nvml::GpuInstanceProfileInfo info{};
    const auto number = static_cast<unsigned>(profile.nvml_enum);
    ASSERT_EQ(nvml_.gi_profile(Gpu0(), number, &info), nvml::kSuccess) << profile.name;
    EXPECT_EQ(info.id, static_cast<unsigned>(profile.nvml_id));
    EXPECT_EQ(info.sliceCount, static_cast<unsigned>(profile.compute_slices));
    EXPECT_EQ(info.instanceCount, static_cast<unsigned>(profile.max_instances));
    EXPECT_GT(info.multiprocessorCount, 0U);
    EXPECT_GT(info.memorySizeMB, 0U);
    if (profile.sms) {
      EXPECT_EQ(info.multiprocessorCount, static_cast<unsigned>(*profile.sms));
    }

    std::vector<nvml::Placement> placements(32);
    unsigned count = 0;
    ASSERT_EQ(nvml_.gi_placements(Gpu0(), info.id, placements.data(), &count), nvml::kSuccess);
    ASSERT_EQ(count, profile.starts.size());
    for (unsigned i = 0; i < count; ++i) {
      EXPECT_EQ(placements[i].start, static_cast<unsigned>(profile.starts[i]));
      nvml::GpuInstance instance = CreateAt(info.id, placements[i].start, placements[i].size);
      const ComputeProfile whole = ComputeProfilesOf(profile).back();
      EXPECT_EQ(whole.slices, profile.compute_slices) << profile.name;
      nvml::ComputeInstance compute = CreateCompute(instance, whole.id);
      ASSERT_EQ(nvml_.destroy_ci(compute), nvml::kSuccess);
      ASSERT_EQ(nvml_.destroy_gi(instance), nvml::kSuccess);
    }
  }
}

// Random creates and destroys: the library allows exactly what MigLayout allows.
TEST_P(GeometryTest, RandomSequencesAreLegalExactlyWhenMigLayoutSaysSo) {
  Start(model().name + "+mig");
  std::mt19937 random(static_cast<std::mt19937::result_type>(GetParam() + 1));
  gpu::MigLayout layout(model());
  std::vector<std::pair<int, nvml::GpuInstance>> live;  // Start and handle.
  for (int step = 0; step < 150; ++step) {
    if (!live.empty() && random() % 3 == 0) {
      const std::size_t victim = random() % live.size();
      ASSERT_EQ(nvml_.destroy_gi(live[victim].second), nvml::kSuccess);
      ASSERT_TRUE(layout.Remove(live[victim].first));
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(victim));
      continue;
    }
    const auto index = static_cast<gpu::ProfileIndex>(random() % model().profiles.size());
    const gpu::MigProfile& profile = model().profile(index);
    const int start = static_cast<int>(random() % static_cast<unsigned>(model().memory_slices));
    const nvml::Placement placement{static_cast<unsigned>(start),
                                    static_cast<unsigned>(profile.memory_slices)};
    nvml::GpuInstance created = nullptr;
    const nvml::Return code =
        nvml_.create_gi_at(Gpu0(), static_cast<unsigned>(profile.nvml_id), &placement, &created);
    const auto placed = layout.Place({start, index});
    nvml::Return expected = nvml::kSuccess;
    if (!placed) {
      expected = placed.error().code == ErrorCode::kInvalidArgument ? nvml::kInvalidArgument
                                                                    : nvml::kInsufficientResources;
    }
    ASSERT_EQ(code, expected) << profile.name << " at " << start << " in step " << step;
    if (placed) live.emplace_back(start, created);
  }
}

// No two instances of a legal layout share an id.
TEST_P(GeometryTest, IdsDoNotCollide) {
  std::vector<gpu::MigInstance> places;
  for (const gpu::ProfileIndex index : model().Select(gpu::ProfileSet::kAll)) {
    for (const int start : model().profile(index).starts) places.push_back({start, index});
  }
  const auto slices = [&](const gpu::MigInstance& place) {
    return gpu::SlicesOf(model().profile(place.profile), place.start);
  };
  for (const gpu::MigInstance& a : places) {
    for (const gpu::MigInstance& b : places) {
      if ((slices(a) & slices(b)) != 0) continue;
      EXPECT_NE(GpuInstanceIdAt(model(), a), GpuInstanceIdAt(model(), b));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllGpus, GeometryTest,
                         ::testing::Range<std::size_t>(0, gpu::Catalogue().size()), ModelName);

}  // namespace
}  // namespace divvy::device::simulator
