#include "simulate_control_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "table.h"

namespace divvy::app {
namespace {

// Keys in the order they are written here.
using Json = nlohmann::ordered_json;

// Of what was refused or failed: a few show what it is about.
constexpr std::size_t kMostLogLines = 5;

Estimate EstimateOf(const std::vector<double>& values) {
  Estimate estimate;
  const auto count = static_cast<double>(values.size());
  for (const double value : values) estimate.mean += value / count;
  if (values.size() < 2) return estimate;
  double squares = 0;
  for (const double value : values) squares += std::pow(value - estimate.mean, 2);
  estimate.error = std::sqrt(squares / (count - 1) / count);
  return estimate;
}

// The mean of what `member` gives for each; nothing when it gives nothing.
template <typename Outcomes, typename Member>
std::optional<double> MeanOf(const Outcomes& outcomes, Member member) {
  std::vector<double> values;
  for (const auto& outcome : outcomes) {
    if (const std::optional<double> value = member(outcome)) values.push_back(*value);
  }
  if (values.empty()) return std::nullopt;
  return EstimateOf(values).mean;
}

// Goodput as a share of another policy's, seed by seed.
std::optional<Estimate> RatioOf(const PolicyOutcomes& policy, const PolicyOutcomes& other) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < policy.by_seed.size(); ++i) {
    if (other.by_seed[i].goodput <= 0) return std::nullopt;
    ratios.push_back(policy.by_seed[i].goodput / other.by_seed[i].goodput);
  }
  return EstimateOf(ratios);
}

double AttainmentOf(const TenantOutcome& tenant) {
  return tenant.offered > 0 ? tenant.in_time / tenant.offered : 1;
}

TenantStanding TenantOf(const PolicyOutcomes& policy, std::size_t tenant) {
  const std::vector<ControlOutcome>& seeds = policy.by_seed;
  return {.attainment = *MeanOf(seeds,
                                [&](const ControlOutcome& outcome) {
                                  return std::optional(AttainmentOf(outcome.tenants[tenant]));
                                }),
          .accuracy = MeanOf(seeds, [&](const ControlOutcome& outcome) {
            return outcome.tenants[tenant].accuracy;
          })};
}

PolicyStanding StandingOf(const ControlReport& report, const PolicyOutcomes& policy) {
  const std::vector<ControlOutcome>& seeds = policy.by_seed;
  const auto mean = [&](auto member) {
    return *MeanOf(seeds, [&](const ControlOutcome& outcome) {
      return std::optional(static_cast<double>(outcome.*member));
    });
  };
  PolicyStanding standing;
  standing.policy = policy.policy;
  std::vector<double> goodputs;
  for (const ControlOutcome& outcome : seeds) {
    goodputs.push_back(outcome.goodput);
    standing.not_done += outcome.log.size();
    if (outcome.worst_gap) {
      standing.worst_gap = std::max(standing.worst_gap.value_or(0), *outcome.worst_gap);
    }
  }
  standing.goodput = EstimateOf(goodputs);
  standing.attainment = mean(&ControlOutcome::attainment);
  standing.accuracy = MeanOf(seeds, [](const ControlOutcome& outcome) { return outcome.accuracy; });
  standing.retrained = mean(&ControlOutcome::retrained);
  standing.reconfigurations = mean(&ControlOutcome::reconfigurations);
  standing.starts = mean(&ControlOutcome::starts);
  standing.lost = mean(&ControlOutcome::lost);
  standing.mean_gap = MeanOf(seeds, [](const ControlOutcome& outcome) { return outcome.mean_gap; });
  for (std::size_t m = 0; m < report.estate.tenants.size(); ++m) {
    standing.tenants.push_back(TenantOf(policy, m));
  }
  return standing;
}

std::string OrDash(const std::optional<double>& share) { return share ? Percent(*share) : "-"; }

// "+3.1%", and how sure that is.
std::string More(const std::optional<Estimate>& share) {
  if (!share) return "-";
  std::string text = fmt::format("{:+.1f}%", share->mean * 100);
  if (share->error) text += fmt::format(" +-{:.1f}", *share->error * 100);
  return text;
}

// Whole numbers as such; means of seeds are seldom whole.
std::string Times(double count, std::size_t seeds) {
  return fmt::format("{:.{}f}", count, seeds == 1 ? 0 : 1);
}

std::string UpperCase(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

std::string PoliciesText(const ControlReport& report,
                         const std::vector<PolicyStanding>& standings) {
  const std::size_t seeds = report.plan.seeds.size();
  const bool several = standings.size() > 1;
  const bool oracle = standings.front().of_oracle.has_value();
  const bool gaps = std::ranges::any_of(
      standings, [](const PolicyStanding& standing) { return standing.mean_gap.has_value(); });
  std::vector<std::vector<std::string>> table = {{"POLICY", "GOODPUT/S"}};
  std::vector<std::string>& head = table[0];
  if (seeds > 1) head.emplace_back("+-");
  if (several) head.push_back("VS " + UpperCase(standings.front().policy));
  if (oracle) head.emplace_back("OF ORACLE");
  for (const char* name : {"IN TIME", "ACCURACY", "RETRAINED", "CHANGES", "STARTS", "LOST"}) {
    head.emplace_back(name);
  }
  if (gaps) head.insert(head.end(), {"GAP", "WORST GAP"});
  for (const PolicyStanding& standing : standings) {
    const bool first = &standing == &standings.front();
    std::vector<std::string>& row = table.emplace_back();
    row = {standing.policy, FourDigits(standing.goodput.mean)};
    if (seeds > 1) row.push_back(FourDigits(standing.goodput.error.value_or(0)));
    if (several) row.push_back(first ? "-" : More(standing.against_first));
    if (oracle) {
      row.push_back(standing.of_oracle ? Percent(standing.of_oracle->mean) : "-");
    }
    row.insert(row.end(),
               {Percent(standing.attainment), OrDash(standing.accuracy),
                Times(standing.retrained, seeds), Times(standing.reconfigurations, seeds),
                Times(standing.starts, seeds), Percent(standing.lost)});
    if (gaps) row.insert(row.end(), {OrDash(standing.mean_gap), OrDash(standing.worst_gap)});
  }
  return Table(table, 1);
}

// Tenants down, policies across.
std::string TenantsText(const ControlReport& report, const std::vector<PolicyStanding>& standings) {
  std::vector<std::vector<std::string>> table = {{"MODEL", "POLICY", "IN TIME", "ACCURACY"}};
  for (std::size_t m = 0; m < report.estate.tenants.size(); ++m) {
    for (const PolicyStanding& standing : standings) {
      const TenantStanding& tenant = standing.tenants[m];
      table.push_back({report.estate.tenants[m].name, standing.policy, Percent(tenant.attainment),
                       OrDash(tenant.accuracy)});
    }
  }
  return Table(table, 2);
}

// What was refused or failed: a few lines, and how many there are.
std::string LogText(const ControlReport& report) {
  std::vector<std::string> lines;
  for (const PolicyOutcomes& policy : report.study.policies) {
    for (const ControlOutcome& outcome : policy.by_seed) {
      for (const std::string& line : outcome.log) {
        lines.push_back(fmt::format("  {}, seed {}, {}\n", policy.policy, outcome.seed, line));
      }
    }
  }
  if (lines.empty()) return "";
  std::string text = fmt::format("\nNot done ({}):\n", Count(lines.size(), "decision"));
  const std::size_t shown = std::min(kMostLogLines, lines.size());
  for (std::size_t i = 0; i < shown; ++i) text += lines[i];
  if (lines.size() > shown) text += fmt::format("  and {} more\n", lines.size() - shown);
  return text;
}

template <typename T>
Json ValueOrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json MeanOrNull(const std::optional<Estimate>& estimate) {
  return estimate ? Json(estimate->mean) : Json(nullptr);
}

Json ErrorOrNull(const std::optional<Estimate>& estimate) {
  return estimate ? ValueOrNull(estimate->error) : Json(nullptr);
}

Json ToJson(const ControlReport& report, const PolicyStanding& standing) {
  Json tenants = Json::array();
  for (std::size_t m = 0; m < standing.tenants.size(); ++m) {
    tenants.push_back({{"model", report.estate.tenants[m].name},
                       {"slo_attainment", standing.tenants[m].attainment},
                       {"accuracy", ValueOrNull(standing.tenants[m].accuracy)}});
  }
  return {{"policy", standing.policy},
          {"goodput_per_s", standing.goodput.mean},
          {"goodput_standard_error", ValueOrNull(standing.goodput.error)},
          {"against_first", MeanOrNull(standing.against_first)},
          {"against_first_standard_error", ErrorOrNull(standing.against_first)},
          {"of_oracle", MeanOrNull(standing.of_oracle)},
          {"of_oracle_standard_error", ErrorOrNull(standing.of_oracle)},
          {"slo_attainment", standing.attainment},
          {"accuracy", ValueOrNull(standing.accuracy)},
          {"retrainings", standing.retrained},
          {"reconfigurations", standing.reconfigurations},
          {"starts", standing.starts},
          {"lost_share", standing.lost},
          {"mean_gap", ValueOrNull(standing.mean_gap)},
          {"worst_gap", ValueOrNull(standing.worst_gap)},
          {"not_done", standing.not_done},
          {"models", std::move(tenants)}};
}

Json ToJson(const ControlReport& report, const std::string& policy, const ControlOutcome& outcome) {
  Json tenants = Json::array();
  for (std::size_t m = 0; m < outcome.tenants.size(); ++m) {
    const TenantOutcome& tenant = outcome.tenants[m];
    tenants.push_back({{"model", report.estate.tenants[m].name},
                       {"offered", tenant.offered},
                       {"in_time", tenant.in_time},
                       {"slo_attainment", AttainmentOf(tenant)},
                       {"accuracy", ValueOrNull(tenant.accuracy)}});
  }
  return {{"policy", policy},
          {"seed", outcome.seed},
          {"goodput_per_s", outcome.goodput},
          {"slo_attainment", outcome.attainment},
          {"accuracy", ValueOrNull(outcome.accuracy)},
          {"retrainings", outcome.retrained},
          {"reconfigurations", outcome.reconfigurations},
          {"starts", outcome.starts},
          {"lost_share", outcome.lost},
          {"mean_gap", ValueOrNull(outcome.mean_gap)},
          {"worst_gap", ValueOrNull(outcome.worst_gap)},
          {"models", std::move(tenants)},
          {"log", outcome.log}};
}

Json SettingsJson(const ControlReport& report) {
  const workload::FleetControl& control = report.fleet.fleet.control;
  return {{"gpu", report.estate.gpu->name},
          {"gpus", report.estate.gpus},
          {"duration_s", report.plan.slots * Seconds(report.estate.slot)},
          {"slot_s", Seconds(control.slot)},
          {"window_s", Seconds(control.window)},
          {"every_s", Seconds(control.every)},
          {"restart_s", Seconds(control::RestartTime(control))},
          {"forecast", control.forecast},
          {"quantile", control.quantile},
          {"season_s", Seconds(control.season)},
          {"hysteresis", control.hysteresis},
          {"route", serving::Describe(report.plan.route)},
          {"seeds", report.plan.seeds}};
}

}  // namespace

std::vector<PolicyStanding> StandingsOf(const ControlReport& report) {
  const std::vector<PolicyOutcomes>& policies = report.study.policies;
  const auto oracle = std::ranges::find(policies, "oracle", &PolicyOutcomes::policy);
  std::vector<PolicyStanding> standings;
  for (const PolicyOutcomes& policy : policies) {
    PolicyStanding& standing = standings.emplace_back(StandingOf(report, policy));
    standing.against_first = RatioOf(policy, policies.front());
    if (standing.against_first) standing.against_first->mean -= 1;
    if (oracle != policies.end()) standing.of_oracle = RatioOf(policy, *oracle);
  }
  return standings;
}

std::string DescribeControl(const ControlReport& report) {
  const workload::FleetControl& control = report.fleet.fleet.control;
  const std::vector<std::uint64_t>& seeds = report.plan.seeds;
  return fmt::format(
      "{} x {} for {}: {} s, windows of {} s, decisions every {} s, a fresh instance answers "
      "after {} s; {}",
      report.estate.gpus, report.estate.gpu->name, Count(report.estate.tenants.size(), "model"),
      FourDigits(report.plan.slots * Seconds(report.estate.slot)),
      FourDigits(Seconds(control.window)), FourDigits(Seconds(control.every)),
      FourDigits(Seconds(control::RestartTime(control))),
      seeds.size() == 1 ? fmt::format("seed {}", seeds.front())
                        : fmt::format("seeds {} to {}", seeds.front(), seeds.back()));
}

std::string ControlTable(const ControlReport& report) {
  std::string text;
  const std::vector<PolicyStanding> standings = StandingsOf(report);
  if (!standings.empty()) {
    text += DescribeControl(report) + "\n\n" + PoliciesText(report, standings) + "\n" +
            TenantsText(report, standings) + LogText(report);
  }
  if (!report.study.rejected.empty()) text += text.empty() ? "" : "\n";
  for (const RejectedPolicy& rejected : report.study.rejected) {
    text += fmt::format("{}: not run. {}\n", rejected.policy, rejected.why);
  }
  if (!report.notes.empty()) text += "\nNotes:\n";
  for (const std::string& note : report.notes) text += fmt::format("  {}\n", note);
  return text;
}

std::string ControlJson(const ControlReport& report) {
  Json policies = Json::array();
  for (const PolicyStanding& standing : StandingsOf(report)) {
    policies.push_back(ToJson(report, standing));
  }
  Json runs = Json::array();
  for (const PolicyOutcomes& policy : report.study.policies) {
    for (const ControlOutcome& outcome : policy.by_seed) {
      runs.push_back(ToJson(report, policy.policy, outcome));
    }
  }
  Json rejected = Json::array();
  for (const RejectedPolicy& policy : report.study.rejected) {
    rejected.push_back({{"policy", policy.policy}, {"why", policy.why}});
  }
  const Json all = {{"control", SettingsJson(report)},
                    {"policies", std::move(policies)},
                    {"runs", std::move(runs)},
                    {"not_run", std::move(rejected)},
                    {"notes", report.notes}};
  // Names of files may be any bytes.
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace divvy::app
