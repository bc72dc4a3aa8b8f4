#include "gpu/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>

namespace divvy::gpu {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// The number before `unit`, as in "1g.24gb+me.all" or "H100-94GB-NVL".
int Gigabytes(const std::string& name, const char* unit) {
  const std::size_t end = name.rfind(unit);
  const std::size_t begin = name.find_last_not_of("0123456789", end - 1) + 1;
  return std::atoi(name.substr(begin, end - begin).c_str());
}

std::string NameOf(std::string_view query) {
  const auto found = FindGpuModel(query);
  return found ? (*found)->name : found.error().message;
}

TEST(CatalogueTest, KnowsFourteenGpusByDistinctNames) {
  std::set<std::string> names;
  for (const GpuModel& model : Catalogue()) names.insert(model.name);
  EXPECT_EQ(names.size(), 14U);
  EXPECT_EQ(Catalogue().size(), 14U);
}

TEST(CatalogueTest, PlacesLieInsideTheGpuInAscendingOrder) {
  for (const GpuModel& model : Catalogue()) {
    for (const MigProfile& profile : model.profiles) {
      SCOPED_TRACE(model.name + " " + profile.name);
      ASSERT_FALSE(profile.starts.empty());
      EXPECT_TRUE(std::ranges::is_sorted(profile.starts, std::ranges::less_equal{}));
      EXPECT_GE(profile.starts.front(), 0);
      EXPECT_LE(profile.starts.back() + profile.memory_slices, model.memory_slices);
      EXPECT_GT(profile.memory_slices, 0);
    }
  }
}

TEST(CatalogueTest, AsManyInstancesAsPromisedHavePlacesOfTheirOwn) {
  for (const GpuModel& model : Catalogue()) {
    for (const MigProfile& profile : model.profiles) {
      int end = 0;
      int apart = 0;
      for (const int start : profile.starts) {
        if (start < end) continue;
        ++apart;
        end = start + profile.memory_slices;
      }
      EXPECT_LE(profile.max_instances, apart) << model.name << " " << profile.name;
      EXPECT_GE(profile.max_instances, 1) << model.name << " " << profile.name;
    }
  }
}

TEST(CatalogueTest, ASizeHasOneBaseProfileAndTheLargestIsTheWholeGpu) {
  for (const GpuModel& model : Catalogue()) {
    std::set<int> sizes;
    for (const ProfileIndex index : model.Select(ProfileSet::kBase)) {
      const MigProfile& profile = model.profile(index);
      EXPECT_TRUE(sizes.insert(profile.compute_slices).second) << model.name << profile.name;
      EXPECT_EQ(profile.name.find_first_of("+-"), std::string::npos) << profile.name;
    }
    ASSERT_FALSE(sizes.empty());
    EXPECT_EQ(*sizes.begin(), 1) << model.name;
    EXPECT_EQ(*sizes.rbegin(), model.compute_slices) << model.name;
  }
}

TEST(CatalogueTest, OnlySevenSliceGpusHaveADoubleMemoryProfile) {
  for (const GpuModel& model : Catalogue()) {
    const std::size_t more =
        model.Select(ProfileSet::kDouble).size() - model.Select(ProfileSet::kBase).size();
    EXPECT_EQ(more, model.compute_slices == 7 ? 1U : 0U) << model.name;
  }
}

TEST(CatalogueTest, NothingIsListedTwice) {
  std::set<std::uint32_t> pci_ids;
  for (const GpuModel& model : Catalogue()) {
    for (const std::uint32_t id : model.pci_device_ids) {
      EXPECT_TRUE(pci_ids.insert(id).second) << model.name << " " << std::hex << id;
      EXPECT_EQ(id & 0xFFFF, 0x10DEU) << "NVIDIA's vendor id, " << model.name;
      EXPECT_EQ(FindGpuModelByPciId(id), &model);
    }
    std::set<int> ids;
    std::set<int> enums;
    std::set<std::string> names;
    for (const MigProfile& profile : model.profiles) {
      EXPECT_TRUE(ids.insert(profile.nvml_id).second) << model.name << " " << profile.name;
      EXPECT_TRUE(enums.insert(profile.nvml_enum).second) << model.name << " " << profile.name;
      EXPECT_TRUE(names.insert(profile.name).second) << model.name << " " << profile.name;
    }
  }
  EXPECT_EQ(FindGpuModelByPciId(0x123410DE), nullptr);
}

TEST(CatalogueTest, NamesAgreeWithSlicesAndMemory) {
  for (const GpuModel& model : Catalogue()) {
    const double gb_a_slice =
        static_cast<double>(Gigabytes(model.name, "GB")) / model.memory_slices;
    for (const MigProfile& profile : model.profiles) {
      SCOPED_TRACE(model.name + " " + profile.name);
      EXPECT_EQ(std::atoi(profile.name.c_str()), profile.compute_slices);
      const int gb = Gigabytes(profile.name, "gb");
      EXPECT_NEAR(gb, gb_a_slice * profile.memory_slices, 1.0);
      if (!profile.memory_mib) continue;
      // Drivers keep some back, and GB is sometimes 10^9 and sometimes 2^30.
      EXPECT_GT(*profile.memory_mib / 1024.0, 0.85 * gb);
      EXPECT_LT(*profile.memory_mib / 1024.0, 1.02 * gb);
    }
  }
}

TEST(CatalogueTest, ResourcesSufficeForWhatTheCountsPromise) {
  for (const GpuModel& model : Catalogue()) {
    for (const MigProfile& profile : model.profiles) {
      SCOPED_TRACE(model.name + " " + profile.name);
      if (model.sms && profile.sms) {
        EXPECT_LE(*profile.sms * profile.max_instances, *model.sms);
      }
      if (!model.engines || !profile.engines) continue;
      EXPECT_LE(profile.engines->decoders * profile.max_instances, model.engines->decoders);
      EXPECT_LE(profile.engines->encoders * profile.max_instances, model.engines->encoders);
      EXPECT_LE(profile.engines->jpeg * profile.max_instances, model.engines->jpeg);
      EXPECT_LE(profile.engines->ofa * profile.max_instances, model.engines->ofa);
    }
  }
}

TEST(CatalogueTest, H200IsWhatItsDriverPrints) {
  const GpuModel& h200 = **FindGpuModel("H200-141GB");
  std::vector<int> ids;
  for (const MigProfile& profile : h200.profiles) ids.push_back(profile.nvml_id);
  EXPECT_THAT(ids, ElementsAre(19, 20, 15, 14, 9, 5, 0));
  EXPECT_EQ(h200.sms, 132);
  EXPECT_EQ(h200.profile(*h200.FindProfileById(9)).name, "3g.71gb");
  EXPECT_FALSE(h200.FindProfileById(1));
  EXPECT_FALSE(h200.FindProfile("3G.71GB")) << "names are exact";
}

TEST(CatalogueTest, RtxProIsCutIntoTwelfths) {
  const GpuModel& rtx = **FindGpuModel("RTX-PRO-6000-Blackwell-96GB");
  EXPECT_EQ(rtx.memory_slices, 12);
  EXPECT_THAT(rtx.profile(*rtx.FindProfile("1g.24gb")).starts, ElementsAre(0, 3, 6, 9));
  EXPECT_THAT(rtx.profile(*rtx.FindProfile("2g.48gb-me")).starts, ElementsAre(0, 6));
}

TEST(FindGpuModelTest, TakesNamesAsPeopleWriteThem) {
  EXPECT_EQ(NameOf("H200-141GB"), "H200-141GB");
  EXPECT_EQ(NameOf("h200"), "H200-141GB");
  EXPECT_EQ(NameOf("NVIDIA H200"), "H200-141GB");
  EXPECT_EQ(NameOf("rtx pro 6000"), "RTX-PRO-6000-Blackwell-96GB");
  EXPECT_EQ(NameOf("a30"), "A30-24GB");
}

TEST(FindGpuModelTest, AnAmbiguousBeginningListsTheChoices) {
  const auto found = FindGpuModel("A100");
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(found.error().message, AllOf(HasSubstr("A100-40GB"), HasSubstr("A100-80GB")));
}

TEST(FindGpuModelTest, ASlipGetsTheNearestName) {
  const auto found = FindGpuModel("H20O-141GB");
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(found.error().message, HasSubstr("did you mean 'H200-141GB'?"));
}

TEST(FindGpuModelTest, NonsenseGetsTheWholeList) {
  for (const char* name : {"", "toaster", "("}) {
    const auto found = FindGpuModel(name);
    ASSERT_FALSE(found) << name;
    EXPECT_EQ(found.error().code, ErrorCode::kNotFound);
    EXPECT_THAT(found.error().message, AllOf(HasSubstr("A30-24GB"), HasSubstr("RTX-PRO")));
  }
}

}  // namespace
}  // namespace divvy::gpu
