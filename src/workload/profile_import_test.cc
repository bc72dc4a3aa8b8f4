#include "workload/profile_import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace divvy::workload {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kParvaHeader =
    "model,mig_gpc,batch,mps_procs,throughput_per_proc_rps,throughput_total_rps,"
    "latency_ms_from_thr,status\n";
const std::string kMigPerfHeader =
    "gpu,kind,model,seq_len,batch,mig_profile,latency_ms,latency_std_ms,"
    "throughput_recomputed_per_s,throughput_as_published,gract_mean,fb_used_mib_mean\n";

std::string ErrorOf(ForeignTable table, const std::string& text) {
  const auto imported = ImportProfiles(table, text, "f.csv");
  return imported ? "no error" : imported.error().message;
}

TEST(ImportParvaGpuTest, LeavesOutWhatDidNotRun) {
  const auto imported = ImportProfiles(ForeignTable::kParvaGpu,
                                       kParvaHeader +
                                           "net,1,1,2,100,200,10,ok\nnet,1,2,2,,,,oom_or_not_run\n"
                                           "net,1,4,2,,,,oom_or_not_run\nnet,2,1,1,200,200,5,ok\n",
                                       "f.csv");
  ASSERT_TRUE(imported) << imported.error().message;
  ASSERT_EQ(imported->models.size(), 1U);
  const ModelProfile& net = imported->models.front();
  EXPECT_EQ(net.gpu, "A100-80GB");
  EXPECT_EQ(net.source, "published, ParvaGPU (SC'24)");
  ASSERT_EQ(net.curves.size(), 2U);
  EXPECT_EQ(Describe(net.curves[0].size), "1g");
  EXPECT_EQ(net.curves[0].processes, 2);
  EXPECT_EQ(net.curves[0].LatencyMs(1), 10);
  EXPECT_EQ(net.curves[0].points.front().row, 2);
  EXPECT_THAT(imported->notes,
              ElementsAre("2 rows left out: out of memory or not run (line 3, 4)"));
}

TEST(ImportParvaGpuTest, LeavesOutOutliersAndNamesThem) {
  const auto imported =
      ImportProfiles(ForeignTable::kParvaGpu,
                     kParvaHeader +
                         "net,3,1,1,100,100,10,ok\nnet,3,2,1,200,200,10,ok\n"
                         "net,3,4,1,210,210,19.0476,ok\nnet,3,8,1,400,400,20,ok\n",
                     "f.csv");
  ASSERT_TRUE(imported);
  EXPECT_EQ(imported->models.front().curves.front().largest_batch(), 4);
  ASSERT_EQ(imported->notes.size(), 1U);
  EXPECT_EQ(imported->notes.front(),
            "net on 3g, 1 process, batch 8: 400 items a second, 1.90 times that of batch 4, where "
            "the curve had flattened; likely a slip; left out (line 5)");
}

TEST(ImportParvaGpuTest, LeavesOutCopiesOfTheFigureWithOneProcessFewer) {
  const auto imported =
      ImportProfiles(ForeignTable::kParvaGpu,
                     kParvaHeader +
                         "net,1,8,1,100.5,100.5,79.602,ok\nnet,1,8,2,60.25,120.5,132.78,ok\n"
                         "net,1,8,3,60.25,180.75,132.78,ok\nnet,1,8,4,60.25,241,132.78,ok\n"
                         "net,2,8,2,60.25,120.5,132.78,ok\n",
                     "f.csv");
  ASSERT_TRUE(imported);
  const ModelProfile& net = imported->models.front();
  ASSERT_EQ(net.curves.size(), 3U);  // 1g with one and two processes, 2g with two.
  EXPECT_EQ(net.curves[1].processes, 2);
  EXPECT_EQ(Describe(net.curves[2].size), "2g");
  ASSERT_EQ(imported->notes.size(), 2U);
  EXPECT_THAT(imported->notes[0], StartsWith("net on 1g, 4 processes, batch 8: left out (line 5)"));
  EXPECT_THAT(imported->notes[1], StartsWith("net on 1g, 3 processes, batch 8: left out (line 4)"));
  EXPECT_THAT(imported->notes[1], HasSubstr("60.25"));
}

TEST(ImportParvaGpuTest, ErrorsNameTheLine) {
  constexpr auto kTable = ForeignTable::kParvaGpu;
  EXPECT_EQ(ErrorOf(kTable, "model,batch\n"),
            "f.csv:1: a ParvaGPU table needs the column 'mig_gpc'");
  EXPECT_EQ(ErrorOf(kTable, kParvaHeader), "f.csv:1: no measurement that ran follows the header");
  EXPECT_THAT(ErrorOf(kTable, kParvaHeader + "net,1,1,1,100,100,x,ok\n"),
              StartsWith("f.csv:2: latency_ms_from_thr: 'x' is not a number"));
  EXPECT_THAT(ErrorOf(kTable, kParvaHeader + "net,0,1,1,100,100,10,ok\n"),
              StartsWith("f.csv:2: mig_gpc: '0' is not a whole number"));
}

TEST(ImportMigPerfTest, SequenceLengthsGiveProfilesOfTheirOwn) {
  const auto imported =
      ImportProfiles(ForeignTable::kMigPerf,
                     kMigPerfHeader +
                         "A100-80GB,infer,bert,64,1,1g.10gb,5,0.1,200,200,0.4,1000.5\n"
                         "A100-80GB,infer,bert,128,1,1g.10gb,9,0.1,111,111,0.6,1100\n"
                         "A100-40GB,infer,bert,64,1,1g.5gb,6,0.1,166,166,0.4,1000\n"
                         "A100-80GB,infer,vit,,1,7g.80gb,4,0.1,250,250,0.1,900\n"
                         "A100-80GB,train,vit,,8,7g.80gb,40,0.1,250,250,0.1,900\n"
                         "A100-80GB,infer,bert,64,1,1g.10gb,5.1,0.1,200,200,0.4,1000.5\n",
                     "f.csv");
  ASSERT_TRUE(imported) << imported.error().message;
  std::vector<std::string> names;
  for (const ModelProfile& model : imported->models) names.push_back(model.model + " " + model.gpu);
  EXPECT_THAT(names, ElementsAre("bert A100-40GB", "bert@seq128 A100-80GB", "bert@seq64 A100-80GB",
                                 "vit A100-80GB"));
  const ProfilePoint& point = imported->models[2].curves.front().points.front();
  EXPECT_EQ(point.latency_ms, 5);
  EXPECT_EQ(point.utilization, 0.4);
  EXPECT_EQ(point.memory_mib, 1000.5);
  EXPECT_EQ(imported->models[2].source, "published, MIGPerf");
  EXPECT_THAT(imported->notes, ElementsAre("1 row left out: not inference (line 6)",
                                           "1 row left out: the same point as a row before "
                                           "(line 7)"));
}

TEST(ImportMigPerfTest, ErrorsNameTheLine) {
  constexpr auto kTable = ForeignTable::kMigPerf;
  EXPECT_EQ(ErrorOf(kTable, "gpu\n"), "f.csv:1: a MIGPerf table needs the column 'kind'");
  EXPECT_EQ(ErrorOf(kTable, kMigPerfHeader + "A100-80GB,train,b,64,1,1g.10gb,5,,,,,\n"),
            "f.csv:2: no inference row follows the header");
  EXPECT_THAT(ErrorOf(kTable, kMigPerfHeader + "A100,infer,b,64,1,1g.10gb,5,,,,,\n"),
              StartsWith("f.csv:2: gpu: GPU 'A100' could be A100-40GB or A100-80GB"));
  EXPECT_THAT(ErrorOf(kTable, kMigPerfHeader + "A100-80GB,infer,b,64,1,whole,5,,,,,\n"),
              StartsWith("f.csv:2: mig_profile: 'whole' is not a partition"));
  EXPECT_THAT(ErrorOf(kTable, kMigPerfHeader + "A100-80GB,infer,b,64,1,1g.10gb,5,,,,40,\n"),
              StartsWith("f.csv:2: gract_mean: '40' is not a number from 0 to 1"));
}

}  // namespace
}  // namespace divvy::workload
