// How well advice on sharing tells what other people measured.
//
// 1. The demand of a job, from its power, utilisation, bandwidth or speeds by batch, against
//    what its speeds on MIG slices say: MISO, 32 training jobs on an A100-40GB. Each model is
//    predicted by a fit on the others.
// 2. "Both jobs keep at least 85 % of their speed", on Gavel's pairs of training jobs on K80,
//    P100 and V100. Each pair is predicted by a fit without any pair of its two models, at
//    any batch size. Beside it the majority, and the rule "utilisations sum to 125 % or less".
//
// Needs DIVVY_DATA with gavel_training_colocation and miso_a100_40gb_mig_training. Two
// arguments, SOLO.csv and PAIRS.csv, put other pairs of Gavel's form in the place of its own;
// one, a file of collocations (docs/formats/jobs.md), is judged likewise, and by what ships. The
// exit status is 1 when a bar is missed on Gavel's own.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "advice_demand.h"
#include "base/csv.h"
#include "base/number.h"
#include "planner/interference.h"
#include "published_data.h"
#include "workload/collocations.h"

namespace divvy::bench {
namespace {

using planner::InterferenceModel;
using planner::InterferenceSample;
using workload::SoloProfile;

constexpr double kKeep = 0.85;
constexpr double kLikely = 0.80;  // What must be predicted to say so: planner/advice_modes.cc.
constexpr double kPerhaps = 0.70;
constexpr double kRuleSum = 1.25;

struct Pair {
  std::string gpu;
  std::string families[2];
  double demands = 0;       // Sum.
  double utilisations = 0;  // Sum: those given, else what goes with such demands.
  InterferenceSample samples[2];

  bool Keeps() const { return std::min(samples[0].speed, samples[1].speed) >= kKeep; }
  bool Has(const std::string& family) const {
    return families[0] == family || families[1] == family;
  }
};

// "ResNet-18 (batch size 16)" to its model and batch.
std::pair<std::string, std::optional<int>> SplitJob(const std::string& job) {
  constexpr std::string_view kBatch = " (batch size ";
  const auto at = job.find(kBatch);
  if (at == std::string::npos) return {job, {}};
  const auto size = job.substr(at + kBatch.size(), job.size() - at - kBatch.size() - 1);
  return {job.substr(0, at), ParseInteger(size)};
}

using Solos = std::map<std::pair<std::string, std::string>, double>;  // By GPU and job.

// What Gavel knows of a job alone: steps a second at each batch size, and on another GPU.
// GPU speeds are ratios of what single precision training gains, from GPU to GPU.
SoloProfile GavelProfile(const Solos& solos, const std::string& gpu, const std::string& job) {
  struct Neighbour {
    const char* gpu;
    const char* other;
    double speed;
  };
  constexpr Neighbour kNeighbours[] = {
      {"k80", "p100", 3.5}, {"p100", "v100", 1.6}, {"v100", "p100", 1 / 1.6}};
  SoloProfile profile;
  profile.steps_per_second = solos.at({gpu, job});
  const auto [family, batch] = SplitJob(job);
  profile.batch = batch;
  for (const auto& [key, steps] : solos) {
    const auto [other_family, other_batch] = SplitJob(key.second);
    if (key.first == gpu && other_family == family && other_batch) {
      profile.speeds.push_back({*other_batch, steps});
    }
  }
  for (const Neighbour& neighbour : kNeighbours) {
    const auto there = solos.find({neighbour.other, job});
    if (neighbour.gpu == gpu && there != solos.end()) {
      profile.elsewhere = {{neighbour.speed, there->second}};
    }
  }
  return profile;
}

// What a pair's jobs are exposed to, from what is known of each alone.
void Expose(const std::vector<SoloProfile>& profiles, std::optional<double> gpu_power_w,
            Pair& pair) {
  std::vector<planner::Demand> demands;
  std::vector<std::optional<double>> steps;
  for (const SoloProfile& profile : profiles) {
    demands.push_back(planner::EstimateDemand(profile, gpu_power_w));
    steps.push_back(profile.steps_per_second);
    pair.demands += demands.back().share;
    // The link of planner/demand.cc, turned around.
    pair.utilisations += profile.utilisation.value_or((demands.back().share + 0.251) / 1.073);
  }
  const auto exposures = planner::Exposures(demands, steps);
  for (std::size_t i = 0; i < 2; ++i) pair.samples[i].exposure = exposures[i];
}

Solos ReadSolos(const std::string& path) {
  const std::string text = ReadAll(path);
  CsvReader csv(text, path);
  const auto gpu = csv.Require("gpu", "Gavel");
  const auto job = csv.Require("job", "Gavel");
  const auto scale = csv.Require("scale_factor", "Gavel");
  const auto steps = csv.Require("steps_per_s", "Gavel");
  Solos solos;
  while (csv.NextRow()) {
    const double speed = csv.Real(steps, {0, 1e9});
    if (csv.Field(scale) == "1" && speed > 0) solos[{csv.Name(gpu), csv.Name(job)}] = speed;
  }
  return solos;
}

std::vector<Pair> ReadPairs(const std::string& solo_path, const std::string& pairs_path) {
  const Solos solos = ReadSolos(solo_path);
  const std::string text = ReadAll(pairs_path);
  CsvReader csv(text, pairs_path);
  const auto gpu = csv.Require("gpu", "Gavel");
  const std::size_t jobs[] = {csv.Require("job1", "Gavel"), csv.Require("job2", "Gavel")};
  const std::size_t scales[] = {csv.Require("sf1", "Gavel"), csv.Require("sf2", "Gavel")};
  const std::size_t norms[] = {csv.Require("norm1", "Gavel"), csv.Require("norm2", "Gavel")};
  std::vector<Pair> pairs;
  while (csv.NextRow()) {
    if (csv.Field(scales[0]) != "1" || csv.Field(scales[1]) != "1") continue;
    Pair pair;
    pair.gpu = csv.Name(gpu);
    std::vector<SoloProfile> profiles;
    for (int i = 0; i < 2; ++i) {
      const std::string job = csv.Name(jobs[i]);
      pair.families[i] = SplitJob(job).first;
      // An empty field, or 0: not measured, or out of memory.
      pair.samples[i].speed = csv.OptionalReal(norms[i], {0, 100}).value_or(0);
      if (solos.contains({pair.gpu, job})) {
        profiles.push_back(GavelProfile(solos, pair.gpu, job));
      }
    }
    if (profiles.size() < 2 || pair.samples[0].speed <= 0 || pair.samples[1].speed <= 0) continue;
    Expose(profiles, {}, pair);
    pairs.push_back(std::move(pair));
  }
  if (!csv.ok()) fmt::print("{}\n", csv.error().message);
  return pairs;
}

// The fit on all pairs of a generation that have neither family.
InterferenceModel FitWithout(const std::vector<Pair>& pairs, bool older, const std::string& family,
                             const std::string& other) {
  std::vector<InterferenceSample> samples;
  for (const Pair& pair : pairs) {
    if (planner::IsBeforeVolta(pair.gpu) != older || pair.Has(family) || pair.Has(other)) continue;
    samples.insert(samples.end(), std::begin(pair.samples), std::end(pair.samples));
  }
  return planner::FitInterference(samples, planner::kRuleOfThumb,
                                  planner::kRuleWeight * static_cast<double>(samples.size()));
}

struct Judged {
  const Pair* pair;
  double speeds[2];

  double Worst() const { return std::min(speeds[0], speeds[1]); }
};

std::vector<Judged> LeaveModelsOut(const std::vector<Pair>& pairs) {
  std::map<std::tuple<bool, std::string, std::string>, InterferenceModel> fits;
  std::vector<Judged> judged;
  for (const Pair& pair : pairs) {
    const bool older = planner::IsBeforeVolta(pair.gpu);
    const auto key = std::tuple(older, pair.families[0], pair.families[1]);
    if (!fits.contains(key)) {
      fits[key] = FitWithout(pairs, older, pair.families[0], pair.families[1]);
    }
    Judged one{.pair = &pair, .speeds = {}};
    for (int i = 0; i < 2; ++i) {
      one.speeds[i] = 1 / (1 + planner::ExtraTime(fits[key], pair.samples[i].exposure));
    }
    judged.push_back(one);
  }
  return judged;
}

struct Confusion {
  int right_yes = 0;
  int wrong_yes = 0;
  int wrong_no = 0;
  int right_no = 0;

  void Add(bool kept, bool said) {
    if (kept) {
      ++(said ? right_yes : wrong_no);
    } else {
      ++(said ? wrong_yes : right_no);
    }
  }

  double accuracy() const {
    return static_cast<double>(right_yes + right_no) /
           (right_yes + wrong_yes + wrong_no + right_no);
  }
  double balanced() const {
    const double yes = right_yes + wrong_no;
    const double no = right_no + wrong_yes;
    if (yes == 0 || no == 0) return std::nan("");
    return 0.5 * (right_yes / yes + right_no / no);
  }
};

// A way to say yes or no.
struct Judge {
  const char* name;
  std::function<bool(const Judged&)> says_yes;
};

// The majority is told what it says.
std::vector<Judge> Judges(bool majority) {
  return {
      {majority ? "majority (yes)" : "majority (no)", [=](const Judged&) { return majority; }},
      {"rule, demand as utilisation", [](const Judged& j) { return j.pair->demands <= kRuleSum; }},
      {"rule, utilisation", [](const Judged& j) { return j.pair->utilisations <= kRuleSum; }},
      {"Divvy: likely", [](const Judged& j) { return j.Worst() >= kLikely; }},
      {"Divvy: likely or perhaps", [](const Judged& j) { return j.Worst() >= kPerhaps; }}};
}

Confusion Count(const std::vector<Judged>& judged, const std::string& gpu,
                const std::function<bool(const Judged&)>& says_yes) {
  Confusion confusion;
  for (const Judged& one : judged) {
    if (!gpu.empty() && one.pair->gpu != gpu) continue;
    confusion.Add(one.pair->Keeps(), says_yes(one));
  }
  return confusion;
}

// Share of (kept, not kept) pairs of pairs that the score puts in the right order.
double AreaUnderCurve(const std::vector<Judged>& judged,
                      const std::function<double(const Judged&)>& score) {
  double right = 0;
  double all = 0;
  for (const Judged& yes : judged) {
    if (!yes.pair->Keeps()) continue;
    for (const Judged& no : judged) {
      if (no.pair->Keeps()) continue;
      right += score(yes) > score(no) ? 1 : (score(yes) == score(no) ? 0.5 : 0);
      ++all;
    }
  }
  return right / all;
}

std::string Shown(double share) { return std::isnan(share) ? "-" : fmt::format("{:.3f}", share); }

void PrintConfusions(const std::vector<Judged>& judged, const std::string& gpu,
                     const std::vector<Judge>& judges) {
  fmt::print("{}\n", gpu.empty() ? "all" : gpu);
  fmt::print("  {:<30}{:>9}{:>10}{:>8}{:>8}{:>8}{:>8}\n", "", "accuracy", "balanced", "yes ok",
             "yes bad", "no bad", "no ok");
  for (const Judge& judge : judges) {
    const Confusion c = Count(judged, gpu, judge.says_yes);
    fmt::print("  {:<30}{:>9.4f}{:>10}{:>8}{:>8}{:>8}{:>8}\n", judge.name, c.accuracy(),
               Shown(c.balanced()), c.right_yes, c.wrong_yes, c.wrong_no, c.right_no);
  }
}

void PrintErrors(const std::vector<Judged>& judged) {
  for (const bool older : {false, true}) {
    double mean = 0;
    int count = 0;
    const auto each = [&](const auto& visit) {
      for (const Judged& one : judged) {
        if (planner::IsBeforeVolta(one.pair->gpu) != older) continue;
        for (int i = 0; i < 2; ++i) visit(one.pair->samples[i].speed, one.speeds[i]);
      }
    };
    each([&](double speed, double) {
      mean += speed;
      ++count;
    });
    if (count == 0) continue;
    mean /= count;
    double absolute = 0;
    double constant = 0;
    double squares = 0;
    each([&](double speed, double predicted) {
      const double extra = std::clamp(1 / speed - 1, 0.02, 8.0);
      absolute += std::abs(predicted - speed);
      constant += std::abs(mean - speed);
      squares += std::pow(std::log(1 / predicted - 1) - std::log(extra), 2);
    });
    fmt::print(
        "{}: mean error of a speed {:.3f} (always the mean of all, {:.2f}: {:.3f}), "
        "standard error of the exponent {:.2f}\n",
        older ? "K80, P100" : "Volta and later", absolute / count, mean, constant / count,
        std::sqrt(squares / count));
  }
}

int JudgePairs(const std::vector<Pair>& pairs, bool bars) {
  if (pairs.empty()) {
    fmt::print("there are no pairs\n");
    return 1;
  }
  std::set<std::string> gpus;
  std::set<std::string> families;
  for (const Pair& pair : pairs) {
    gpus.insert(pair.gpu);
    families.insert(std::begin(pair.families), std::end(pair.families));
  }
  const auto judged = LeaveModelsOut(pairs);
  const auto kept = static_cast<std::size_t>(std::ranges::count_if(pairs, &Pair::Keeps));
  const auto judges = Judges(2 * kept > pairs.size());
  fmt::print("{} pairs of {} models; both keep {:.0f} % in {}. Models of a pair left out.\n",
             pairs.size(), families.size(), 100 * kKeep, kept);
  PrintConfusions(judged, "", judges);
  for (const std::string& gpu : gpus) PrintConfusions(judged, gpu, judges);
  fmt::print("\narea under the curve: demands alone {:.3f}, Divvy {:.3f}\n",
             AreaUnderCurve(judged, [](const Judged& j) { return -j.pair->demands; }),
             AreaUnderCurve(judged, &Judged::Worst));
  PrintErrors(judged);
  fmt::print("at least predicted to say yes: yes ok / yes bad\n ");
  for (int percent = 60; percent <= 90; percent += 5) {
    const Confusion c =
        Count(judged, "", [&](const Judged& j) { return j.Worst() >= percent / 100.0; });
    fmt::print(" {} %: {}/{}", percent, c.right_yes, c.wrong_yes);
  }
  fmt::print("\nfits on all (base, demand, pace):\n");
  for (const bool older : {false, true}) {
    const InterferenceModel fit = FitWithout(pairs, older, "-", "-");
    fmt::print("  {:<16}{:8.3f}{:8.3f}{:8.3f}\n", older ? "K80, P100" : "Volta and later", fit.base,
               fit.demand, fit.pace);
  }
  if (!bars) return 0;
  const Confusion ours = Count(judged, "", judges[3].says_yes);
  bool met = true;
  for (int i = 0; i < 3; ++i) {
    const Confusion theirs = Count(judged, "", judges[static_cast<std::size_t>(i)].says_yes);
    met = met && ours.accuracy() > theirs.accuracy() && ours.balanced() > theirs.balanced();
  }
  fmt::print("more accurate than majority and rules, balanced and not: {}\n",
             met ? "met" : "MISSED");
  return met ? 0 : 1;
}

// Pairs of one's own. A model is what stands before " (batch size" in a job's name.
int JudgeHistory(const std::string& path) {
  const auto sets = workload::ParseCollocations(ReadAll(path), path);
  if (!sets) {
    fmt::print("{}\n", sets.error().message);
    return 1;
  }
  const auto models = planner::InterferenceModels::Shipped();
  std::vector<Pair> pairs;
  Confusion shipped;
  for (const workload::MeasuredSet& set : *sets) {
    const bool mps = set.mode == workload::SharingMode::kMps;
    if (set.jobs.size() != 2 || (!mps && set.mode != workload::SharingMode::kTimeSlicing)) continue;
    std::vector<SoloProfile> profiles;
    Pair pair;
    pair.gpu = set.gpu;
    for (std::size_t i = 0; i < 2; ++i) {
      pair.families[i] = SplitJob(set.jobs[i].name).first;
      pair.samples[i].speed = set.jobs[i].speed;
      profiles.push_back(set.jobs[i].profile);
    }
    Expose(profiles, set.gpu_power_w, pair);
    Judged judged{.pair = &pair, .speeds = {}};
    for (int i = 0; i < 2; ++i) {
      const auto& model = mps ? models.mps : models.TimeSlicing(set.gpu);
      judged.speeds[i] = 1 / (1 + planner::ExtraTime(model, pair.samples[i].exposure));
    }
    shipped.Add(pair.Keeps(), judged.Worst() >= kLikely);
    pairs.push_back(std::move(pair));
  }
  if (pairs.empty()) return JudgePairs(pairs, false);
  fmt::print(
      "Divvy as it ships: accuracy {:.4f}, balanced {}: yes ok {}, yes bad {}, no bad {}, "
      "no ok {}\n",
      shipped.accuracy(), Shown(shipped.balanced()), shipped.right_yes, shipped.wrong_yes,
      shipped.wrong_no, shipped.right_no);
  return JudgePairs(pairs, false);
}

int Main(int argc, char** argv) {
  if (argc == 2) return JudgeHistory(argv[1]);
  if (argc == 3) return JudgePairs(ReadPairs(argv[1], argv[2]), false);
  const auto data = DataFolder();
  if (!data) {
    fmt::print("skipped: set DIVVY_DATA to a folder with the published measurements\n");
    return 0;
  }
  JudgeDemand(*data + "/miso_a100_40gb_mig_training");
  const std::string gavel = *data + "/gavel_training_colocation";
  return JudgePairs(ReadPairs(gavel + "/solo_physical.csv", gavel + "/pairs_physical.csv"), true);
}

}  // namespace
}  // namespace divvy::bench

int main(int argc, char** argv) { return divvy::bench::Main(argc, argv); }
