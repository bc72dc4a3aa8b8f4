#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "base/random.h"
#include "sim/simulation.h"

namespace divvy::sim {
namespace {

using serving::ModelId;
using serving::ReplicaId;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* kRoutes[] = {"divvy", "divvy-merge",          "elsa",     "elsa+merge+shed",
                                   "fifs",  "shortest-queue+merge", "weighted", "weighted+shed"};

serving::RouteOptions Route(const char* text) { return serving::ParseRoute(text).value(); }

TimePoint At(double ms) { return TimePoint(FromMilliseconds(ms)); }

serving::LatencyTable Linear(double first_ms, double more_ms, int max_batch) {
  std::vector<Duration> times;
  for (int items = 0; items < max_batch; ++items) {
    times.push_back(FromMilliseconds(first_ms + items * more_ms));
  }
  return serving::LatencyTable(times);
}

// One model on replicas of one lane that take one request at a time, 100 ms each.
serving::Setup Slow(int replicas) {
  serving::Setup setup{.models = {"model"}, .tables = {Linear(100, 0, 1)}, .replicas = {}};
  setup.replicas.resize(static_cast<std::size_t>(replicas));
  return setup;
}

std::vector<workload::Arrival> Trace(std::initializer_list<double> at_ms) {
  std::vector<workload::Arrival> trace;
  for (const double ms : at_ms) trace.push_back({FromMilliseconds(ms), 1});
  return trace;
}

Source Of(const std::vector<workload::Arrival>& trace, Duration slo = seconds(10)) {
  return {.slo = slo, .arrivals = std::span<const workload::Arrival>(trace)};
}

// Does at each tick what the test says, and remembers what it heard.
class Scripted final : public Operator {
 public:
  using Script = std::function<void(TimePoint now, std::vector<Switch>& switches)>;
  explicit Scripted(Script script = [](TimePoint, std::vector<Switch>&) {})
      : script_(std::move(script)) {}

  void Tick(TimePoint now, std::span<const SlotCounts> past,
            std::vector<Switch>& switches) override {
    EXPECT_TRUE(switches.empty());
    ticks.push_back(now);
    slots.emplace_back(past.begin(), past.end());
    script_(now, switches);
  }

  SlotCounts Sum(std::size_t model) const {
    SlotCounts sum;
    for (const auto& slot : slots) {
      sum.offered += slot[model].offered;
      sum.in_time += slot[model].in_time;
      sum.late += slot[model].late;
      sum.refused += slot[model].refused;
    }
    return sum;
  }

  std::vector<TimePoint> ticks;
  std::vector<std::vector<SlotCounts>> slots;  // By tick, then by model.

 private:
  Script script_;
};

// Holds every line to what the lines before it allow: each request has one outcome,
// and nothing starts on a replica that is down.
class Witness final : public EventLog {
 public:
  explicit Witness(const serving::Setup& setup) {
    for (const serving::ReplicaSpec& spec : setup.replicas) up_.push_back(spec.up);
  }

  void Write(std::string_view line) override {
    text += line;
    const std::string words(line.substr(line.find(' ') + 1));
    const std::string kind = words.substr(0, words.find(' '));
    if (kind == "arrive") {
      EXPECT_EQ(Number(words, "id="), outcomes.size());
      outcomes.push_back(0);
    } else if (kind == "answer" || kind == "refuse") {
      ++outcomes.at(Number(words, "id="));
    } else if (kind == "start") {
      EXPECT_TRUE(up_.at(Number(words, "replica="))) << line;
    } else {
      up_.at(Number(words, "replica=")) = kind == "up";
      ++switched;
    }
  }

  std::string text;
  std::vector<int> outcomes;  // By request.
  int switched = 0;

 private:
  static std::size_t Number(const std::string& words, const std::string& name) {
    return std::stoul(words.substr(words.find(name) + name.size()));
  }

  std::vector<bool> up_;
};

TEST(OperatorTest, ASlotHasItsBeginningAndNotItsEnd) {
  // Comes in the first slot, is answered as the second begins; the next comes then, too.
  const auto trace = Trace({900, 1000, 2500});
  const std::vector<Source> sources = {Of(trace, milliseconds(150))};
  Scripted op;
  (void)Simulate(Slow(1), Route("fifs"), sources, {}, {.op = &op});
  EXPECT_EQ(op.ticks, (std::vector{At(0), At(1000), At(2000), At(3000)}));
  const auto counts = [&](std::size_t tick) {
    const SlotCounts& slot = op.slots.at(tick).at(0);
    return std::vector{slot.offered, slot.in_time, slot.late, slot.refused};
  };
  using Counts = std::vector<std::uint64_t>;
  EXPECT_EQ(counts(0), (Counts{0, 0, 0, 0}));
  EXPECT_EQ(counts(1), (Counts{1, 0, 0, 0}));
  EXPECT_EQ(counts(2), (Counts{1, 2, 0, 0}));
  EXPECT_EQ(counts(3), (Counts{1, 1, 0, 0}));
}

TEST(OperatorTest, LateAndRefusedRequestsAreToldApart) {
  // The second waits 50 ms for the first and is late; with shedding it is refused.
  const auto trace = Trace({0, 50});
  const std::vector<Source> sources = {Of(trace, milliseconds(120))};
  for (const bool shed : {false, true}) {
    Scripted op;
    (void)Simulate(Slow(1), Route(shed ? "elsa+shed" : "elsa"), sources, {},
                   {.op = &op, .slot = milliseconds(100)});
    EXPECT_EQ(op.Sum(0).in_time, 1U);
    EXPECT_EQ(op.Sum(0).late, shed ? 0U : 1U);
    EXPECT_EQ(op.Sum(0).refused, shed ? 1U : 0U);
  }
}

TEST(OperatorTest, TheLastTickIsTheFirstAfterTheLastAnswer) {
  const auto trace = Trace({0});
  const std::vector<Source> sources = {Of(trace)};
  // Answered at 100 ms: as the slot of the third one begins.
  for (const auto& [slot_ms, last_ms] : {std::pair{30, 120}, {100, 200}, {101, 101}}) {
    Scripted op;
    (void)Simulate(Slow(1), Route("divvy"), sources, {},
                   {.op = &op, .slot = milliseconds(slot_ms)});
    EXPECT_EQ(op.ticks.back(), At(last_ms)) << slot_ms;
    EXPECT_EQ(op.slots.back()[0].in_time, 1U) << slot_ms;
  }
}

TEST(OperatorTest, TicksGoOnToTheEndOfTheTimeThatWasSet) {
  const auto trace = Trace({0});
  const std::vector<Source> ends = {Of(trace)};
  const std::vector<Source> is_cut_off = {
      {.slo = seconds(1), .arrivals = workload::Load{.rate = 0.02}}};
  for (const auto& sources : {ends, is_cut_off}) {
    Scripted op;
    const Options options{.duration = milliseconds(99500), .op = &op};
    (void)Simulate(Slow(1), Route("divvy"), sources, {}, options);
    EXPECT_EQ(op.ticks.back(), TimePoint(seconds(100)));
    EXPECT_EQ(op.ticks.size(), 101U);
  }
  Scripted op;  // But not when all that may come has come.
  (void)Simulate(Slow(1), Route("divvy"), ends, {},
                 {.requests = 1, .duration = seconds(100), .op = &op});
  EXPECT_EQ(op.ticks.size(), 2U);
}

TEST(OperatorTest, NeitherSwitchesToComeNorASourceThatIsTooLateKeepARunAlive) {
  std::vector<Source> sources = {{.slo = seconds(1), .arrivals = workload::Load{.rate = 5}},
                                 {.slo = seconds(1), .arrivals = workload::Load{.rate = 0.00001}}};
  Scripted op([](TimePoint now, std::vector<Switch>& switches) {
    switches.push_back({now + seconds(5), ReplicaId{0}, true});
  });
  (void)Simulate(Slow(1), Route("divvy"), sources, {}, {.requests = 50, .op = &op});
  EXPECT_EQ(op.Sum(0).offered, 50U);
  EXPECT_LT(op.ticks.back(), TimePoint(seconds(30)));
}

TEST(OperatorTest, ASwitchAtTheTickComesBeforeAnArrivalAtTheSameInstant) {
  serving::Setup setup = Slow(1);
  setup.replicas[0].up = false;
  // One at a tick, and one at an instant for which its arrival was scheduled first.
  const auto trace = Trace({1000, 2500});
  const std::vector<Source> sources = {Of(trace)};
  Scripted op([](TimePoint now, std::vector<Switch>& switches) {
    if (now == At(1000)) switches.push_back({now, ReplicaId{0}, true});
    if (now == At(2000)) switches = {{At(2500), ReplicaId{0}, true}, {now, ReplicaId{0}, false}};
  });
  for (const char* route : kRoutes) {
    op.slots.clear();
    (void)Simulate(setup, Route(route), sources, {}, {.op = &op});
    EXPECT_EQ(op.Sum(0).in_time, 1U) << route;
    EXPECT_EQ(op.Sum(0).refused, 1U) << route;
  }
}

TEST(OperatorTest, SwitchesOfOneTickAreTakenInTheOrderGiven) {
  const auto trace = Trace({1000});
  const std::vector<Source> sources = {Of(trace)};
  for (const bool up : {false, true}) {
    Scripted op([&](TimePoint now, std::vector<Switch>& switches) {
      switches = {{now, ReplicaId{0}, !up}, {now, ReplicaId{0}, up}};
    });
    const SimResult result = Simulate(Slow(1), Route("divvy"), sources, {}, {.op = &op});
    EXPECT_EQ(result.models[0].answered, up ? 1U : 0U);
  }
}

TEST(OperatorTest, AReplicaThatGoesFinishesWhatItRunsAndTakesNoMore) {
  // Replica 0 runs from 950 to 1050 ms, goes at 1000 and is back at 3000; the request at
  // 1010 ms finds replica 1, which the first one left idle.
  const auto trace = Trace({950, 1010, 1020, 3000});
  const std::vector<Source> sources = {Of(trace)};
  const serving::Setup setup = Slow(2);
  for (const char* route : kRoutes) {
    Witness witness(setup);
    Scripted op([](TimePoint now, std::vector<Switch>& switches) {
      if (now == At(0)) switches.push_back({now, ReplicaId{1}, false});
      if (now == At(1000)) switches = {{now, ReplicaId{1}, true}, {now, ReplicaId{0}, false}};
      if (now == At(3000)) switches = {{now, ReplicaId{0}, true}, {now, ReplicaId{1}, false}};
    });
    const SimResult result =
        Simulate(setup, Route(route), sources, {}, {.log = &witness, .op = &op});
    EXPECT_EQ(witness.outcomes, std::vector(4, 1)) << route;
    EXPECT_EQ(result.models[0].answered, 4U) << route;
    EXPECT_NE(witness.text.find("1.050000000 answer id=0 latency_ms=100.000000"), std::string::npos)
        << route << "\n"
        << witness.text;
    EXPECT_EQ(result.replicas[0].batches, 2U) << route;
    EXPECT_EQ(result.replicas[1].batches, 2U) << route;
  }
}

// Models on replicas of several sizes, most of which are down.
serving::Setup RandomSetup(Random& random) {
  serving::Setup setup{.models = {"a", "b", "c"}, .tables = {}, .replicas = {}};
  for (int table = 0; table < 5; ++table) {
    setup.tables.push_back(Linear(1 + 9 * random.Uniform(), 2 * random.Uniform(),
                                  1 + static_cast<int>(random.Below(12))));
  }
  const auto replicas = 1 + random.Below(100);
  for (std::uint64_t i = 0; i < replicas; ++i) {
    setup.replicas.push_back({.model = static_cast<ModelId>(random.Below(3)),
                              .size = 1 + static_cast<int>(random.Below(3)),
                              .lanes = 1 + static_cast<int>(random.Below(3)),
                              .table = random.Below(5),
                              .up = random.Below(5) == 0});
  }
  return setup;
}

std::vector<Source> RandomSources(Random& random) {
  std::vector<Source> sources;
  for (std::uint32_t model = 0; model < 3; ++model) {
    const workload::Load load{.rate = 50 + 400 * random.Uniform(),
                              .batches = workload::BatchDistribution::LogNormal(3, 0.7, 12)};
    sources.push_back({.model = ModelId{model},
                       .slo = FromMilliseconds(15 + 50 * random.Uniform()),
                       .priority = static_cast<int>(random.Below(3)),
                       .arrivals = load});
  }
  return sources;
}

class RandomOperatorTest : public testing::TestWithParam<const char*> {};

TEST_P(RandomOperatorTest, EveryRequestHasOneOutcomeInTheLogTheResultAndTheSlots) {
  int switched = 0;
  for (std::uint64_t seed = 0; seed < 20 && !HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << GetParam() << ", seed " << seed);
    Random random(seed);
    const serving::Setup setup = RandomSetup(random);
    const std::vector<Source> sources = RandomSources(random);
    const Duration slot = milliseconds(7);
    Scripted op([&](TimePoint now, std::vector<Switch>& switches) {
      for (auto count = random.Below(4); count > 0; --count) {
        // At once, within the slot, or slots later.
        const Duration wait = random.Below(3) * slot * 3 / 4;
        switches.push_back({now + wait, static_cast<ReplicaId>(random.Below(setup.replicas.size())),
                            random.Below(3) == 0});
      }
    });
    Witness witness(setup);
    const SimResult result = Simulate(setup, Route(GetParam()), sources, {},
                                      {.seed = seed,
                                       .requests = 1000,
                                       .spread = {0.1, 0, 0.2, 0, 0.3},
                                       .log = &witness,
                                       .op = &op,
                                       .slot = slot});
    switched += witness.switched;
    EXPECT_EQ(witness.outcomes, std::vector(1000, 1));
    for (std::size_t i = 0; i < op.ticks.size(); ++i) {
      EXPECT_EQ(op.ticks[i], TimePoint{} + static_cast<int>(i) * slot);
    }
    for (std::size_t model = 0; model < 3; ++model) {
      const ModelResult& whole = result.models[model];
      EXPECT_EQ(op.Sum(model).offered, whole.offered);
      EXPECT_EQ(op.Sum(model).in_time, whole.in_time);
      EXPECT_EQ(op.Sum(model).late, whole.answered - whole.in_time);
      EXPECT_EQ(op.Sum(model).refused, whole.shed());
      EXPECT_EQ(whole.offered, whole.answered + whole.shed());
    }
  }
  EXPECT_GT(switched, 1000);
}

// The log without its switches.
std::string WithoutSwitches(const std::string& text) {
  std::string rest;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at) + 1;
    const std::string line = text.substr(at, end - at);
    if (line.find(" up ") == std::string::npos && line.find(" down ") == std::string::npos) {
      rest += line;
    }
    at = end;
  }
  return rest;
}

TEST_P(RandomOperatorTest, SwitchingToWhatIsAndReplicasThatStayDownChangeNothing) {
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    Random random(seed);
    const serving::Setup setup = RandomSetup(random);
    const std::vector<Source> sources = RandomSources(random);
    const auto run = [&](Operator* op) {
      Witness witness(setup);
      (void)Simulate(
          setup, Route(GetParam()), sources, {},
          {.seed = seed, .requests = 300, .log = &witness, .op = op, .slot = milliseconds(7)});
      return witness.text;
    };
    Scripted idle;
    Scripted insistent([&](TimePoint now, std::vector<Switch>& switches) {
      for (std::uint32_t i = 0; i < setup.replicas.size(); ++i) {
        switches.push_back({now + milliseconds(i % 5), ReplicaId{i}, setup.replicas[i].up});
      }
    });
    const std::string alone = run(nullptr);
    EXPECT_EQ(run(&idle), alone) << GetParam() << ", seed " << seed;
    EXPECT_EQ(WithoutSwitches(run(&insistent)), alone) << GetParam() << ", seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Routes, RandomOperatorTest, testing::ValuesIn(kRoutes));

TEST(OperatorDeathTest, TheRulesOfSwitchesAreChecked) {
  const auto trace = Trace({0});
  const std::vector<Source> sources = {Of(trace)};
  const auto run = [&](Switch change) {
    Scripted op([&](TimePoint, std::vector<Switch>& switches) { switches.push_back(change); });
    (void)Simulate(Slow(1), Route("divvy"), sources, {}, {.op = &op});
  };
  EXPECT_DEATH(run({At(0) - milliseconds(1), ReplicaId{0}, true}), "nothing in the past");
  EXPECT_DEATH(run({At(0), ReplicaId{1}, true}), "what is there");
}

}  // namespace
}  // namespace divvy::sim
