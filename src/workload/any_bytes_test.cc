#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "base/random.h"
#include "base/result.h"
#include "base/test_mutation.h"
#include "workload/collocations.h"
#include "workload/fleet.h"
#include "workload/jobs_file.h"
#include "workload/profile_file.h"
#include "workload/profile_import.h"
#include "workload/trace_file.h"
#include "workload/training_file.h"

// Files come from people and networks: whatever bytes they hold, a parser gives a
// value or kInvalidArgument. The sanitizers see to the rest.

namespace divvy::workload {
namespace {

constexpr int kRounds = 2'000;

// Runs `parse` over mutations of `text`; some must be refused and some must pass,
// or the mutations are not worth having.
template <typename Parse>
void ExpectValueOrInvalidArgument(const std::string& text, std::uint64_t seed, Parse parse) {
  ASSERT_TRUE(parse(text));
  Random random(seed);
  int passed = 0;
  for (int round = 0; round < kRounds; ++round) {
    const std::string mutated = divvy::testing::Mutated(text, random);
    const auto result = parse(mutated);
    passed += result ? 1 : 0;
    if (result) continue;
    ASSERT_EQ(result.error().code, ErrorCode::kInvalidArgument) << mutated;
    ASSERT_TRUE(result.error().message.starts_with("f:")) << result.error().message;
  }
  EXPECT_GT(passed, kRounds / 100);
  EXPECT_LT(passed, kRounds);
}

TEST(AnyBytesTest, Profiles) {
  ExpectValueOrInvalidArgument(
      "model,partition,processes,batch,latency_ms,p95_ms,utilization,memory_mib,gpu,source\n"
      "a,1g,1,1,5,6,0.5,900,A100-80GB,\"x, y\"\na,1g,1,2,7,8,0.6,950,A100-80GB,\"x, y\"\n"
      "a,1g,1,4,9,9,0.7,,A100-80GB,\"x, y\"\na,3g.40gb,2,8,12,,,,A100-80GB,\"x, y\"\n"
      "b,60sm,1,1,1.5,,,,,\n",
      1, [](const std::string& text) { return ParseProfiles(text, "f"); });
}

TEST(AnyBytesTest, ForeignTables) {
  ExpectValueOrInvalidArgument(
      "model,mig_gpc,batch,mps_procs,throughput_per_proc_rps,latency_ms_from_thr,status\n"
      "n,1,1,1,100,10,ok\nn,1,2,1,110,18.2,ok\nn,1,4,1,400,10,ok\nn,1,4,2,400,10,ok\n"
      "n,1,8,1,,,oom\n",
      2,
      [](const std::string& text) { return ImportProfiles(ForeignTable::kParvaGpu, text, "f"); });
  ExpectValueOrInvalidArgument(
      "gpu,kind,model,seq_len,batch,mig_profile,latency_ms,gract_mean,fb_used_mib_mean\n"
      "A100-80GB,infer,bert,64,1,1g.10gb,5,0.4,1000\nA100-80GB,infer,bert,128,1,1g.10gb,5,0.4,\n"
      "A100-80GB,train,vit,,1,1g.10gb,5,0.4,1000\n",
      3, [](const std::string& text) { return ImportProfiles(ForeignTable::kMigPerf, text, "f"); });
}

TEST(AnyBytesTest, Traces) {
  const auto parse = [](const std::string& text) { return ParseTrace(text, "f"); };
  ExpectValueOrInvalidArgument("arrival_s,model,batch\n0,a,1\n0.5,b,4\n1e1,\"a\",65536\n", 4,
                               parse);
  ExpectValueOrInvalidArgument(
      "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n"
      "2023-11-16 18:17:04.0319600,3180,8\n2024-02-29 00:00:00,1,1\n",
      5, parse);
}

TEST(AnyBytesTest, TrainingSpeeds) {
  ExpectValueOrInvalidArgument(
      "model,size,samples_per_s,memory_mib,gpu,source\na,1g,100,900,A100-80GB,\"x, y\"\n"
      "a,3g.40gb,310.5,,A100-80GB,\"x, y\"\nb,60sm,1e3,,,\n",
      7, [](const std::string& text) { return ParseTraining(text, "f"); });
}

TEST(AnyBytesTest, Jobs) {
  ExpectValueOrInvalidArgument(
      "gpu: {kind: V100, memory: 16, power: 250}\n"
      "jobs:\n"
      "  - {name: a, command: [x, \"y z\"], class: latency, environment: [A=b], copies: 2}\n"
      "  - name: b\n"
      "    command: python3 train.py --model resnet50 --epochs 90 | tee log\n"
      "    directory: /d\n"
      "    profile: {memory: 1, utilisation: 0.5, power: 99, speed: 4, batch: 8, family: bert,\n"
      "      speeds: {8: 4, 16: 3.5}, elsewhere: {gpu_speed: 2, speed: 6}}\n"
      "run: {warmup: 1s, limit: 2min}\n",
      9, [](const std::string& text) { return ParseJobs(text, "f"); });
  ExpectValueOrInvalidArgument(
      "set,gpu,gpu_power_w,mode,job,speed,power_w\n"
      "1,\"A, B\",250,mps,\"training of resnet50, batch 64\",0.5123,99.125\n"
      "1,\"A, B\",250,mps,\"training of bert, sequences of 128\",0.9251,\n",
      10, [](const std::string& text) { return ParseCollocations(text, "f"); });
}

TEST(AnyBytesTest, LearningFleets) {
  ExpectValueOrInvalidArgument(
      "gpus: {kind: A100-80GB, count: 1}\n"
      "models:\n"
      "  - name: a\n"
      "    profile: p.csv\n"
      "    slo: 20ms\n"
      "    load: {rate: 4, shape: {step: 20s, factors: [0.4, 1, 0, 2.2]}}\n"
      "    learning:\n"
      "      accuracy: 0.82\n"
      "      drift: 0.05\n"
      "      floor: 0.3\n"
      "      speed: {file: t.csv, model: b}\n"
      "      options: [{name: quick, samples: 8000, accuracy: 0.8}, {name: b, samples: 9, "
      "accuracy: 1}]\n"
      "      uncertainty: 0.01\n"
      "  - {name: c, profile: p.csv, slo: 1s, load: {rate: 9}, learning: {accuracy: 1, drift: 0,\n"
      "     speed: t.csv, curve: {start: 0.6, limit: 0.9, scale: 900, at: [40, 90]}}}\n"
      "control: {policy: migrator, slot: 1s, window: 200s, every: 5s, forecast: best,\n"
      "  quantile: 0.8, season: 0s, restart: {change: 300ms, start: 5.7s, prepared: 0.83},\n"
      "  hysteresis: 0.02}\n",
      8, [](const std::string& text) { return ParseFleet(text, "f"); });
}

TEST(AnyBytesTest, Fleets) {
  ExpectValueOrInvalidArgument(
      "gpus: {kind: A100-80GB, count: 8}\n"
      "models:\n"
      "  - name: a\n"
      "    profile: {file: p.csv, model: b}\n"
      "    slo: 20ms\n"
      "    load:\n"
      "      rate: 400/s\n"
      "      arrivals: {gamma: {cv: 2}}\n"
      "      diurnal: {amplitude: 0.5, period: 1h}\n"
      "      batch: {lognormal: {median: 6, sigma: 0.9, max: 32}}\n"
      "    weight: 1\n"
      "  - {name: c, profile: p.csv, slo: 1s, load: {rate: 9, batch: {empirical: {1: 2, 8: 1}}}}\n"
      "  - {name: d, profile: p.csv, slo: 1s, load: {trace: t.csv, tokens_per_item: 64}}\n"
      "jobs: [{name: t, instance: 3g.40gb, count: 2}]\n"
      "policy: {planner: exact, route: divvy, safety: 0.9, batching_delay: 1, seed: 1}\n",
      6, [](const std::string& text) { return ParseFleet(text, "f"); });
}

}  // namespace
}  // namespace divvy::workload
