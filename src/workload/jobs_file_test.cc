#include "workload/jobs_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "workload/collocations.h"
#include "workload/model_families.h"

namespace divvy::workload {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<JobsFile> ParseWithJob(const std::string& job) {
  return ParseJobs("gpu: {kind: A100-40GB}\njobs:\n  - " + job + "\n", "jobs.yaml");
}

TEST(JobsFileTest, ReadsAllThatThereIs) {
  const auto file = ParseJobs(
      "gpu: {kind: a100-40, power: 250}\n"
      "jobs:\n"
      "  - name: train\n"
      "    command: [python3, train.py]\n"
      "    class: batch\n"
      "    directory: /srv\n"
      "    environment: [A=b, C=]\n"
      "    copies: 2\n"
      "    profile: {memory: 8.5, utilisation: 0.82, sm_activity: 0.5, bandwidth: 0.4, power: "
      "210,\n"
      "      speed: 12.5, batch: 64, speeds: {64: 12.5, 32: 20}, elsewhere: {gpu_speed: 0.6, "
      "speed: 9},\n"
      "      demand: 0.6, family: bert}\n"
      "  - {name: serve, command: ./serve | cat, class: latency}\n"
      "run: {warmup: 5s, limit: 1min}\n",
      "jobs.yaml");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->gpu, "A100-40GB");
  EXPECT_DOUBLE_EQ(file->gpu_memory_gib.value(), 39.25);
  EXPECT_EQ(file->gpu_power_w, 250);
  EXPECT_EQ(file->run.limit, std::chrono::minutes(1));
  ASSERT_EQ(file->jobs.size(), 3U);
  const CollocatedJob& train = file->jobs[1];
  EXPECT_EQ(train.name, "train-2");
  EXPECT_THAT(train.command, ElementsAre("python3", "train.py"));
  EXPECT_FALSE(train.shell);
  EXPECT_THAT(train.environment, ElementsAre("A=b", "C="));
  EXPECT_THAT(train.profile.speeds, ElementsAre(BatchSpeed{32, 20}, BatchSpeed{64, 12.5}));
  EXPECT_EQ(train.profile.power_w, 210);
  EXPECT_EQ(train.profile.elsewhere->gpu_speed, 0.6);
  EXPECT_TRUE(file->jobs[2].shell);
  EXPECT_THAT(file->jobs[2].command, ElementsAre("./serve | cat"));
  EXPECT_EQ(file->jobs[2].job_class, JobClass::kLatency);
}

TEST(JobsFileTest, AGpuThatMigDoesNotCutNeedsItsMemory) {
  const auto given = ParseJobs("gpu: {kind: V100, memory: 16}\njobs: [{name: a}]\n", "f");
  ASSERT_TRUE(given) << given.error().message;
  EXPECT_EQ(given->gpu_memory_gib, 16);
  const auto missing = ParseJobs("gpu: {kind: V100}\njobs: [{name: a}]\n", "f");
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message, HasSubstr("f:1: kind: "));
  EXPECT_THAT(missing.error().message, HasSubstr("'memory' in GiB"));
}

TEST(JobsFileTest, RefusesWhatCannotBeMeant) {
  const std::pair<const char*, const char*> cases[] = {
      {"{name: a, clas: batch}", "did you mean 'class'?"},
      {"{name: a, class: latent}", "class: 'latent' is not latency or batch"},
      {"{class: batch}", "jobs.yaml:3"},
      {"{name: a, command: []}", "command: 0 words"},
      {"{name: a, environment: [X]}", "'X' is not NAME=VALUE"},
      {"{name: a, copies: 0}", "copies"},
      {"{name: a, copies: 64}\n  - {name: b}", "jobs.yaml:4: jobs: more than 64"},
      {"{name: a-1}\n  - {name: a, copies: 2}", "jobs.yaml:4: name: 'a-1' is a job's on line 3"},
      {"{name: a, profile: {utilisation: 82}}", "utilisation: '82' is not a number from 0 to 1"},
      {"{name: a, profile: {utilization: 0.8}}", "did you mean 'utilisation'?"},
      {"{name: a, profile: {family: brt}}", "did you mean 'bert'?"},
      {"{name: a, profile: {speeds: {1: 2}, batch: 1}}", "two batch sizes or more"},
      {"{name: a, profile: {speeds: {1: 2, 2: 1}}}", "needs 'batch'"},
      {"{name: a, profile: {speeds: {1: 2, 2: 1}, batch: 4}}", "none for the job's own batch, 4"},
      {"{name: a, profile: {speeds: {1: 2, x: 1}, batch: 1}}", "'x' is not a batch size"},
      {"{name: a, profile: {elsewhere: {gpu_speed: 2, speed: 1}}}", "needs 'speed'"},
      {"{name: a, profile: {speed: 1, elsewhere: {gpu_speed: 1, speed: 1}}}", "tells nothing"},
      {"{name: a}\nrun: {warmup: 2s, limit: 1s}", "limit: 1s is not longer than the warm-up, 2s"},
  };
  for (const auto& [text, says] : cases) {
    const auto file = ParseWithJob(text);
    ASSERT_FALSE(file) << text;
    EXPECT_EQ(file.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(file.error().message, HasSubstr(says)) << text;
  }
  EXPECT_FALSE(ParseJobs("", "f"));
  EXPECT_FALSE(ParseJobs("gpu: {kind: A100-40GB}\njobs: []\n", "f"));
}

TEST(JobsFileTest, TheExamplesAndTheDocumentAreRead) {
  const auto read = [](const std::filesystem::path& path) {
    std::ifstream stream(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(stream), {});
  };
  const std::filesystem::path root = DIVVY_SOURCE_DIR;
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(root / "examples/jobs")) {
    ++count;
    const auto file = ParseJobs(read(entry.path()), entry.path().string());
    EXPECT_TRUE(file) << file.error().message;
  }
  EXPECT_GE(count, 3);
  const std::string text = read(root / "docs/formats/jobs.md");
  const auto block = [&](const std::string& open) {
    const std::size_t at = text.find(open) + open.size();
    return text.substr(at, text.find("```", at) - at);
  };
  const auto file = ParseJobs(block("```yaml\n"), "jobs.md");
  EXPECT_TRUE(file) << file.error().message;
  const auto sets = ParseCollocations(block("```csv\n"), "jobs.md");
  ASSERT_TRUE(sets) << sets.error().message;
  EXPECT_FALSE(sets->empty());
}

TEST(CollocationsTest, WhatIsWrittenIsReadBack) {
  const MeasuredSet written{
      .id = "a, b",
      .gpu = "H200-141GB",
      .gpu_power_w = 700,
      .mode = SharingMode::kMps,
      .jobs = {
          {.name = "a", .profile = {.utilisation = 0.25, .steps_per_second = 12.5}, .speed = 0.9},
          {.name = "b", .profile = {.power_w = 300, .demand = 0.5}, .speed = 0.75}}};
  const auto read = ParseCollocations(CollocationsHeader() + CollocationLines(written), "h.csv");
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->size(), 1U);
  const MeasuredSet& set = read->front();
  EXPECT_EQ(set.id, "a, b");
  EXPECT_EQ(set.gpu_power_w, 700);
  EXPECT_EQ(set.mode, SharingMode::kMps);
  ASSERT_EQ(set.jobs.size(), 2U);
  EXPECT_EQ(set.jobs[0].profile.utilisation, 0.25);
  EXPECT_EQ(set.jobs[0].profile.steps_per_second, 12.5);
  EXPECT_FALSE(set.jobs[0].profile.power_w);
  EXPECT_EQ(set.jobs[1].profile.demand, 0.5);
  EXPECT_EQ(set.jobs[1].speed, 0.75);
}

TEST(CollocationsTest, RefusesWhatCannotBeMeant) {
  const std::pair<const char*, const char*> cases[] = {
      {"set,gpu,mode,job\n", "h.csv:1: a file of collocations needs the column 'speed'"},
      {"set,gpu,mode,job,speed,pwer_w\n", "pwer_w"},
      {"set,gpu,mode,job,speed\n1,A,mpss,a,1\n1,A,mpss,b,1\n", "h.csv:2: mode: 'mpss' is not"},
      {"set,gpu,mode,job,speed\n1,A,mps,a,0\n1,A,mps,b,1\n", "speed"},
      {"set,gpu,mode,job,speed\n1,A,mps,a,1\n", "h.csv:2: set: '1' has one job"},
      {"set,gpu,mode,job,speed\n1,A,mps,a,1\n1,A,mig,b,1\n", "h.csv:3: set: '1' has another"},
  };
  for (const auto& [text, says] : cases) {
    const auto sets = ParseCollocations(text, "h.csv");
    ASSERT_FALSE(sets) << text;
    EXPECT_THAT(sets.error().message, HasSubstr(says)) << text;
  }
  const auto none = ParseCollocations("set,gpu,mode,job,speed\n", "h.csv");
  ASSERT_TRUE(none);
  EXPECT_TRUE(none->empty());
}

TEST(ModelFamiliesTest, DemandGrowsWithTheBatchBetweenItsEnds) {
  for (const std::string_view family : KnownFamilies()) {
    double last = 0;
    for (const int batch : {1, 4, 16, 64, 100, 256, 1024}) {
      const double demand = FamilyDemand(family, batch).value();
      EXPECT_GE(demand, last) << family << " " << batch;
      EXPECT_LE(demand, 1);
      last = demand;
    }
    EXPECT_EQ(FamilyDemand(family, {}), last) << family;
  }
  EXPECT_FALSE(FamilyDemand("unheard", 1));
}

}  // namespace
}  // namespace divvy::workload
