#include "gate/ops_summary.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include "gate/ops.h"
#include "gate/ops_reader.h"

namespace divvy::gate {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

OpFacts Facts(std::uint32_t blocks, std::uint16_t fill) {
  OpFacts facts;
  facts.shape = {.handle = 1, .grid = {blocks, 2, 1}, .block = {128, 1, 1}, .shared_bytes = 64};
  facts.blocks_per_multiprocessor = 4;
  facts.multiprocessors = 100;
  facts.fill = fill;
  return facts;
}

void AddSamples(OpsRecord& record, std::size_t op, std::initializer_list<std::uint32_t> us) {
  for (const std::uint32_t each : us) record.AddSample(op, {.duration_ns = each * 1000});
}

TEST(OpDurationsTest, MeanOfAllAndQuantilesOfAFairShare) {
  OpDurations durations;
  EXPECT_EQ(durations.Quantile(0.5), 0);
  for (std::uint32_t us = 1; us <= 100; ++us) durations.Add(us * 1000);
  EXPECT_DOUBLE_EQ(durations.Mean(), 50.5);
  EXPECT_DOUBLE_EQ(durations.Quantile(0.5), 50);
  EXPECT_DOUBLE_EQ(durations.Quantile(0.95), 95);
  EXPECT_DOUBLE_EQ(durations.Quantile(1), 100);
  // Far more than are kept, and ever longer: the first must not crowd out the last.
  OpDurations many;
  for (std::uint32_t us = 1; us <= 100'000; ++us) many.Add(us * 10);
  EXPECT_EQ(many.count(), 100'000U);
  EXPECT_NEAR(many.Quantile(0.5), 500, 25);
  EXPECT_NEAR(many.Quantile(0.95), 950, 25);
}

TEST(OpsSummaryTest, KernelsOfAllProcessesByWhatTheyTook) {
  OpsRecord record(false);
  const std::size_t first = record.AddProcess({.pid = 10, .program = "a", .start_ns = kSecond});
  const std::size_t second = record.AddProcess({.pid = 11, .program = "b", .start_ns = kSecond});
  const std::size_t small = record.AddOp(first, Facts(5, 25), "small");
  const std::size_t large = record.AddOp(first, Facts(500, 1000), "large");
  const std::size_t again = record.AddOp(second, Facts(500, 1000), "large");
  const std::size_t other = record.AddOp(second, Facts(501, 1000), "large");
  record.AddOp(second, Facts(9, 9), "never launched");
  for (const auto& [op, launches] :
       {std::pair{small, 1000U}, {large, 10U}, {again, 30U}, {other, 7U}})
    record.CountTo(op, launches);
  AddSamples(record, small, {10, 10, 10, 14});
  AddSamples(record, large, {800});
  AddSamples(record, again, {1100, 1300});

  const OpsSummary summary = Summarise(record);

  ASSERT_EQ(summary.rows.size(), 3U);
  const OpRow& top = summary.rows[0];
  EXPECT_EQ(top.kernel, "large");
  EXPECT_EQ(top.launches, 40U) << "of both processes";
  EXPECT_EQ(top.samples, 3U);
  EXPECT_DOUBLE_EQ(top.mean_us, 1100) << "by launches, not by timings";
  EXPECT_DOUBLE_EQ(top.p95_us, 1300);
  EXPECT_DOUBLE_EQ(top.total_us, 44'000);
  EXPECT_EQ(top.sms, 100);
  EXPECT_FALSE(top.light);
  const OpRow& next = summary.rows[1];
  EXPECT_EQ(next.kernel, "small");
  EXPECT_DOUBLE_EQ(next.total_us, 11'000);
  EXPECT_DOUBLE_EQ(next.share, 0.2);
  EXPECT_EQ(next.sms, 3) << "ten blocks, four to a multiprocessor";
  EXPECT_TRUE(next.light);
  EXPECT_EQ(summary.rows[2].samples, 0U);
  EXPECT_FALSE(summary.rows[2].light) << "of a kernel that was not timed nothing is known";
  EXPECT_EQ(summary.totals.launches, 1047U);
  EXPECT_EQ(summary.totals.untimed, 7U);
  EXPECT_DOUBLE_EQ(summary.totals.light_share, 0.2);
  ASSERT_EQ(summary.processes.size(), 2U);
  EXPECT_EQ(summary.processes[0].totals.launches, 1010U);
  EXPECT_EQ(summary.processes[1].totals.launches, 37U);
  EXPECT_DOUBLE_EQ(summary.processes[1].rows[0].mean_us, 1200) << "by its own timings";
}

void AddSamples(OpsRecord& record, std::size_t op, int count, std::uint32_t ns) {
  for (int i = 0; i < count; ++i) record.AddSample(op, {.duration_ns = ns});
}

TEST(OpsSummaryTest, PartsCountByTheirLaunchesNotByTheirTimings) {
  OpsRecord record(false);
  const std::size_t first = record.AddProcess({.pid = 10, .program = "a", .start_ns = kSecond});
  const std::size_t second = record.AddProcess({.pid = 11, .program = "b", .start_ns = kSecond});
  // The first few of a kind are all timed, and of the others one in thousands.
  const std::size_t often = record.AddOp(first, Facts(5, 25), "uneven");
  const std::size_t seldom = record.AddOp(second, Facts(5, 25), "uneven");
  record.CountTo(often, 1'000'000);
  record.CountTo(seldom, 9);
  AddSamples(record, often, 100, 10'000);
  AddSamples(record, seldom, 8, 10'000'000);
  // More than are kept of one, all that are kept of the other.
  const std::size_t many = record.AddOp(first, Facts(6, 25), "many");
  const std::size_t few = record.AddOp(second, Facts(6, 25), "many");
  record.CountTo(many, 1'000'000);
  record.CountTo(few, 50'000);
  AddSamples(record, many, 100'000, 10'000);
  AddSamples(record, few, 4'096, 100'000);

  const OpsSummary summary = Summarise(record);

  ASSERT_EQ(summary.rows.size(), 2U);
  const OpRow& kept = summary.rows[0];
  EXPECT_EQ(kept.kernel, "many");
  EXPECT_DOUBLE_EQ(kept.p50_us, 10);
  EXPECT_DOUBLE_EQ(kept.p95_us, 10) << "50,000 of 1,050,000 are less than one in twenty";
  EXPECT_DOUBLE_EQ(kept.total_us, 15e6);
  const OpRow& uneven = summary.rows[1];
  EXPECT_EQ(uneven.kernel, "uneven");
  EXPECT_NEAR(uneven.total_us, 10.09e6, 1);
  EXPECT_NEAR(uneven.mean_us, 10.09e6 / 1'000'009, 1e-6);
  EXPECT_NEAR(summary.processes[0].totals.gpu_us + summary.processes[1].totals.gpu_us,
              summary.totals.gpu_us, 1);
}

TEST(OpsSummaryTest, GraphsWithAsManyKernelsAreNotTheSame) {
  OpsRecord record(false);
  const std::size_t first = record.AddProcess({.pid = 10, .program = "a", .start_ns = kSecond});
  const std::size_t second = record.AddProcess({.pid = 11, .program = "b", .start_ns = kSecond});
  OpFacts graph;
  graph.is_graph = 1;
  graph.graph_kernels = 12;
  struct Part {
    std::size_t process;
    std::uint64_t handle;
    std::uint64_t launches;
    std::uint32_t us;
  };
  for (const Part& part : {Part{first, 1, 1000, 10},
                           {first, 2, 10, 10'000},
                           {second, 1, 1, 500},
                           {first, 1, 1000, 10}}) {
    graph.shape.handle = part.handle;
    const std::size_t op = record.AddOp(part.process, graph, "");
    record.CountTo(op, part.launches);
    AddSamples(record, op, {part.us});
  }
  record.EndInterval(2 * kSecond);
  const OpsSummary summary = Summarise(record);
  ASSERT_EQ(summary.rows.size(), 3U) << "one of them had two kinds";
  EXPECT_DOUBLE_EQ(summary.rows[0].total_us, 100'000);
  EXPECT_DOUBLE_EQ(summary.rows[1].total_us, 20'000);
  EXPECT_EQ(summary.rows[1].launches, 2000U);
  EXPECT_DOUBLE_EQ(summary.rows[2].total_us, 500);
  ASSERT_EQ(summary.phases.size(), 1U);
  EXPECT_NEAR(summary.phases[0].busy, 0.1205, 1e-9) << "each by what it takes itself";
}

TEST(OpsSummaryTest, PhasesSayWhenTheGpuWasBusy) {
  OpsRecord record(false);
  const std::size_t process = record.AddProcess({.pid = 10, .program = "a", .start_ns = kSecond});
  const std::size_t op = record.AddOp(process, Facts(5, 25), "k");
  AddSamples(record, op, {20});
  // Busy for a second of 50,000 launches, idle for one, busy again, and then a long way out.
  record.CountTo(op, 50'000);
  record.EndInterval(2 * kSecond);
  record.EndInterval(3 * kSecond);
  record.CountTo(op, 75'000);
  record.EndInterval(4 * kSecond);
  record.EndInterval(9 * kSecond);
  const OpsSummary summary = Summarise(record);
  ASSERT_EQ(summary.phases.size(), 3U);
  EXPECT_DOUBLE_EQ(summary.phases[0].busy, 1);
  EXPECT_DOUBLE_EQ(summary.phases[0].launches_per_s, 50'000);
  EXPECT_DOUBLE_EQ(summary.phases[1].busy, 0);
  EXPECT_DOUBLE_EQ(summary.phases[2].busy, 0.5);
  EXPECT_DOUBLE_EQ(summary.phases[2].end_s, 3);
  EXPECT_DOUBLE_EQ(summary.phases[2].light_share, 1);
}

TEST(OpsSummaryTest, LongRunsKeepTheirCountsInFewIntervalsAndSamples) {
  OpsRecord record(true);
  const std::size_t process = record.AddProcess({.pid = 10, .program = "a", .start_ns = 0});
  const std::size_t op = record.AddOp(process, Facts(5, 25), "k");
  constexpr std::uint64_t kLooks = 5000;
  for (std::uint64_t look = 1; look <= kLooks; ++look) {
    record.CountTo(op, look * 3);
    record.EndInterval(look * kSecond / 10);
  }
  EXPECT_LT(record.intervals().size(), OpsRecord::kMostIntervals);
  std::uint64_t launches = 0;
  std::uint64_t until = 0;
  for (const OpsInterval& interval : record.intervals()) {
    EXPECT_EQ(interval.begin_ns, until) << "no gap, no overlap";
    until = interval.end_ns;
    launches += interval.launches.at(op);
  }
  EXPECT_NEAR(static_cast<double>(launches), kLooks * 3, 3 * 64) << "but for the one under way";
  EXPECT_EQ(Summarise(record).phases.size(), kOpsPhases);

  constexpr std::uint64_t kMany = 2 * OpsRecord::kMostSamples + 10;
  for (std::uint64_t i = 0; i < kMany; ++i) record.AddSample(op, {.start_ns = i});
  EXPECT_LT(record.samples().size(), OpsRecord::kMostSamples);
  EXPECT_EQ(record.samples_kept_of(), 4U);
  for (std::size_t i = 0; i < record.samples().size(); ++i)
    ASSERT_EQ(record.samples()[i].sample.start_ns, 4 * i) << "evenly from the whole run";
}

class OpsFilesTest : public ::testing::Test {
 protected:
  OpsFilesTest() {
    std::string pattern = ::testing::TempDir() + "/divvy-ops-files-XXXXXX";
    directory_ = mkdtemp(pattern.data());
  }
  ~OpsFilesTest() override { std::filesystem::remove_all(directory_); }

  std::string directory_;
};

TEST_F(OpsFilesTest, TheGateLoadsWhatWasSaved) {
  OpsRecord record(false);
  const std::size_t process = record.AddProcess({.pid = 10, .program = "a", .start_ns = 0});
  const std::size_t timed = record.AddOp(process, Facts(5, 25), "_Z5smallPf");
  const std::size_t untimed = record.AddOp(process, Facts(6, 25), "untimed");
  OpFacts graph;
  graph.is_graph = 1;
  graph.graph_kernels = 12;
  const std::size_t graphs = record.AddOp(process, graph, "");
  for (const std::size_t op : {timed, untimed, graphs}) record.CountTo(op, 5);
  AddSamples(record, timed, {10, 11, 90});
  AddSamples(record, graphs, {500});
  const OpsSummary summary = Summarise(record);
  EXPECT_EQ(summary.rows[0].kernel, "graph of 12 kernels");
  EXPECT_FALSE(summary.rows[0].light);

  const std::string path = directory_ + "/k.ops";
  std::ofstream(path) << FormatOps(summary.rows);
  static KnownOps known;  // What it holds is never freed.
  char error[256] = "";
  ASSERT_TRUE(known.Load(path.c_str(), error, sizeof error)) << error;
  EXPECT_STREQ(error, "");
  EXPECT_EQ(known.Count(), 1U);
  const KnownOp* const op = known.Find(OpKey("_Z5smallPf", Facts(5, 25).shape));
  ASSERT_NE(op, nullptr);
  EXPECT_EQ(op->ns, 11'000U) << "the median, which one slow launch does not move";
  EXPECT_EQ(op->fill, 25U);
}

TEST_F(OpsFilesTest, ALogGoesWhenItsProcessHasEnded) {
  char error[512] = "";
  OpsLog* const own = CreateOpsLog(directory_.c_str(), "goes on", error, sizeof error);
  ASSERT_NE(own, nullptr) << error;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    OpsLog* const log = CreateOpsLog(directory_.c_str(), "short", error, sizeof error);
    if (log == nullptr || AddOpKind(*log, Facts(5, 25), "k") != 0) _exit(1);
    log->kinds[0].launches.fetch_add(7);
    for (int i = 0; i < 3; ++i) PushOpSample(*log, {.duration_ns = 5'000, .kind = 0});
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  OpsReader reader(directory_, false);
  for (std::uint64_t look = 1; look <= 2; ++look) {
    reader.Look(own->start_ns + look * kSecond);
    std::vector<std::string> left;
    for (const auto& entry : std::filesystem::directory_iterator(directory_))
      left.push_back(entry.path().filename());
    EXPECT_EQ(left, std::vector{"ops-" + std::to_string(getpid()) + "-0"}) << "of us alone";
  }
  reader.Finish(own->start_ns + 3 * kSecond);
  CloseOpsLog(own);
  ASSERT_EQ(reader.record().processes().size(), 2U);
  ASSERT_EQ(reader.record().ops().size(), 1U);
  EXPECT_EQ(reader.record().ops()[0].launches, 7U);
  EXPECT_EQ(reader.record().ops()[0].durations.count(), 3U) << "once, and to its end";
}

TEST_F(OpsFilesTest, TheReaderTakesInWhatProcessesWroteAlsoOfThoseThatAreGone) {
  char error[512] = "";
  OpsLog* const log = CreateOpsLog(directory_.c_str(), "train", error, sizeof error);
  ASSERT_NE(log, nullptr) << error;
  std::ofstream(directory_ + "/ops-99-0") << "half";
  OpsReader reader(directory_, true);
  const std::uint64_t start = log->start_ns;
  ASSERT_EQ(AddOpKind(*log, Facts(5, 25), "k"), 0);
  log->kinds[0].launches.fetch_add(10);
  PushOpSample(*log, {.duration_ns = 5'000, .kind = 0});
  PushOpSample(*log, {.duration_ns = 5'000, .kind = 77});  // Of a kind that nobody wrote.
  reader.Look(start + kSecond);
  ASSERT_EQ(AddOpKind(*log, Facts(6, 25), "l"), 1);
  log->kinds[0].launches.fetch_add(5);
  log->kinds[1].launches.fetch_add(1);
  log->dropped.fetch_add(3);
  log->timing_ns.store(5'000);
  log->let_go.store(2);
  PushOpSample(*log, {.duration_ns = 7'000, .kind = 1});
  CloseOpsLog(log);
  EXPECT_TRUE(reader.notes().empty()) << "it might have become whole";
  reader.Finish(start + 2 * kSecond);

  const OpsRecord& record = reader.record();
  ASSERT_EQ(record.processes().size(), 1U);
  EXPECT_EQ(record.processes()[0].program, "train");
  EXPECT_EQ(record.processes()[0].log.dropped, 3U);
  EXPECT_EQ(record.processes()[0].log.timing_ns, 5'000U);
  EXPECT_EQ(record.processes()[0].log.let_go, 2U);
  ASSERT_EQ(record.ops().size(), 2U);
  EXPECT_EQ(record.ops()[0].launches, 15U);
  EXPECT_EQ(record.ops()[1].kernel, "l");
  EXPECT_EQ(record.samples().size(), 2U);
  ASSERT_EQ(record.intervals().size(), 2U);
  EXPECT_EQ(record.intervals()[0].launches.at(0), 10U);
  EXPECT_EQ(record.intervals()[1].launches.at(0), 5U);
  ASSERT_EQ(reader.notes().size(), 1U);
  EXPECT_NE(reader.notes()[0].find("ops-99-0 is no kernel log"), std::string::npos);
}

}  // namespace
}  // namespace divvy::gate
