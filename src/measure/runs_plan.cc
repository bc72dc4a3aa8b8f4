#include "measure/runs_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "base/hash.h"

namespace divvy::measure {
namespace {

using workload::CollocatedJob;

constexpr std::size_t kLongestName = 150;

bool RunTheSame(const CollocatedJob& a, const CollocatedJob& b) {
  return a.command == b.command && a.directory == b.directory && a.environment == b.environment &&
         a.job_class == b.job_class;
}

// Half of the hash will do to notice that a text changed.
std::string ShortHash(std::string_view text) {
  return fmt::format("#{:08x}", static_cast<std::uint32_t>(HashOf(text)));
}

// With a mark behind each: ["a b"] is not ["a", "b"].
std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += word + '\0';
  return text;
}

std::map<std::string_view, std::string_view> WordsOf(std::string_view text) {
  std::map<std::string_view, std::string_view> words;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    const std::size_t equals = std::min(word.find('='), word.size());
    words[word.substr(0, equals)] = word.substr(std::min(equals + 1, word.size()));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
  }
  return words;
}

}  // namespace

std::string MadeWith(const CollocatedJob& job, const workload::CollocationRun& run) {
  std::string text =
      fmt::format("command={}", ShortHash((job.shell ? "sh " : "") + Joined(job.command)));
  for (const auto& [key, value] : {std::pair<const char*, std::string>{"directory", job.directory},
                                   {"environment", Joined(job.environment)},
                                   {"ready", job.ready},
                                   {"progress", job.progress},
                                   {"latency", job.latency}}) {
    if (!value.empty()) text += fmt::format(" {}={}", key, ShortHash(value));
  }
  if (job.job_class == workload::JobClass::kLatency) text += " class=latency";
  if (job.waits) text += " waits=yes";
  if (job.profile.batch) text += fmt::format(" batch={}", *job.profile.batch);
  return text + fmt::format(" warmup={:g}s limit={:g}s", Seconds(run.warmup), Seconds(run.limit));
}

std::string WhatChanged(std::string_view before, std::string_view now) {
  if (before.empty()) return {};
  const auto old_words = WordsOf(before);
  auto words = WordsOf(now);
  for (const auto& [key, value] : old_words) words.emplace(key, "");
  std::string changes;
  for (const auto& [key, value] : words) {
    const auto at = old_words.find(key);
    const std::string_view old_value = at == old_words.end() ? "" : at->second;
    if (old_value == value) continue;
    changes += fmt::format("{}{}", changes.empty() ? "" : ", ", key);
    if (value.starts_with('#') || old_value.starts_with('#')) continue;
    changes += fmt::format(" ({}, now {})", old_value.empty() ? "none" : old_value,
                           value.empty() ? "none" : value);
  }
  return changes;
}

AloneOf CopiesAmong(const std::vector<CollocatedJob>& jobs) {
  AloneOf copies;
  for (const CollocatedJob& job : jobs) {
    const auto first = std::ranges::find_if(
        jobs, [&](const CollocatedJob& other) { return RunTheSame(job, other); });
    copies[job.name] = first->name;
  }
  return copies;
}

std::vector<RunRow> PlanRuns(const std::vector<CollocatedJob>& jobs,
                             const std::vector<workload::SharingMode>& modes,
                             const std::vector<int>& shares) {
  std::vector<RunRow> rows;
  const AloneOf copies = CopiesAmong(jobs);
  for (const CollocatedJob& job : jobs) {
    if (copies.at(job.name) != job.name) continue;
    // A name of its own may be as long as names are.
    const std::string who =
        job.name.size() > kLongestName ? fmt::format("job {}", &job - jobs.data() + 1) : job.name;
    rows.push_back({.workload = fmt::format("{} alone", who), .mode = {}, .job = job.name});
  }
  if (jobs.size() < 2) return rows;
  for (const workload::SharingMode mode : modes) {
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      RunRow row{
          .workload = fmt::format("all, {}", NameOf(mode)), .mode = mode, .job = jobs[i].name};
      if (mode == workload::SharingMode::kMpsShares) row.share = shares[i];
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

workload::SoloProfile ProfileFromRun(const CollocatedJob& job, const RunRow& alone) {
  workload::SoloProfile profile = job.profile;
  if (alone.gpu.busy) profile.utilisation = std::clamp(*alone.gpu.busy, 0.0, 1.0);
  if (alone.gpu.sm_active) profile.sm_activity = std::clamp(*alone.gpu.sm_active, 0.0, 1.0);
  if (alone.gpu.memory_mib) profile.memory_gib = *alone.gpu.memory_mib / 1024;
  if (alone.gpu.power_w) profile.power_w = alone.gpu.power_w;
  // Speeds at other batches and elsewhere were measured with the one in the file.
  if (alone.figures.steps_per_s && profile.speeds.empty() && !profile.elsewhere) {
    profile.steps_per_second = alone.figures.steps_per_s;
  }
  return profile;
}

}  // namespace divvy::measure
