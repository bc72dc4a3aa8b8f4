#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include "plan/plan_file.h"

namespace divvy::plan {
namespace {

// True for what means the same with quotes and without, in every YAML reader.
bool IsPlainWord(std::string_view text) {
  constexpr std::array<std::string_view, 9> kMeaningful = {"null", "true", "false", "yes", "no",
                                                           "on",   "off",  "y",     "n"};
  std::string lower;
  for (const char c : text) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (std::ranges::find(kMeaningful, lower) != kMeaningful.end()) return false;
  const auto is_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.' ||
           c == '/' || c == '+';
  };
  return !text.empty() && std::isalpha(static_cast<unsigned char>(text.front())) &&
         std::ranges::all_of(text, is_word);
}

// A profile begins with a digit but is no number: "1g.18gb".
bool IsPlainProfile(std::string_view text) {
  return text.size() > 2 && std::isdigit(static_cast<unsigned char>(text.front())) &&
         text[1] == 'g' && IsPlainWord(text.substr(1));
}

std::string Scalar(std::string_view text) {
  if (IsPlainWord(text) || IsPlainProfile(text)) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

void AppendRuns(std::string& text, const std::vector<Assignment>& runs, int indent) {
  if (runs.empty()) return;
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "{:{}}runs:\n", "", indent);
  for (const Assignment& run : runs) {
    const char* kind = run.kind == Assignment::Kind::kModel ? "model" : "job";
    fmt::format_to(out, "{:{}}- {}: {}\n", "", indent + 2, kind, Scalar(run.name));
    const auto number = [&](const char* key, int value) {
      fmt::format_to(out, "{:{}}{}: {}\n", "", indent + 4, key, value);
    };
    if (run.processes != 1) number("processes", run.processes);
    if (run.batch) number("batch", *run.batch);
    if (run.mps_share) number("mps_share", *run.mps_share);
  }
}

void AppendInstances(std::string& text, const std::vector<PlannedInstance>& instances) {
  const auto out = std::back_inserter(text);
  for (auto it = instances.begin(); it != instances.end();) {
    // What the parser allows as a count, so that a plan of absurd size still parses.
    constexpr std::ptrdiff_t kMaxCount = 32;
    const std::optional<int>& start = it->start;
    auto end = std::next(it);
    while (!start && end != instances.end() && *end == *it && end - it < kMaxCount) ++end;
    fmt::format_to(out, "      - profile: {}\n", Scalar(it->profile));
    if (start) fmt::format_to(out, "        start: {}\n", *start);
    if (end - it > 1) fmt::format_to(out, "        count: {}\n", end - it);
    AppendRuns(text, it->runs, 8);
    it = end;
  }
}

}  // namespace

std::string FormatPlan(const Plan& plan) {
  std::string text = "version: 1\n";
  const auto out = std::back_inserter(text);
  text += plan.gpus.empty() ? "gpus: []\n" : "gpus:\n";
  for (const PlannedGpu& gpu : plan.gpus) {
    const int* index = std::get_if<int>(&gpu.gpu);
    fmt::format_to(out, "  - gpu: {}\n",
                   index ? std::to_string(*index) : Scalar(std::get<std::string>(gpu.gpu)));
    fmt::format_to(out, "    kind: {}\n", Scalar(gpu.kind));
    if (!gpu.mig) text += "    mig: false\n";
    if (gpu.mig || !gpu.instances.empty()) {
      text += gpu.instances.empty() ? "    instances: []\n" : "    instances:\n";
    }
    AppendInstances(text, gpu.instances);
    AppendRuns(text, gpu.runs, 4);
  }
  return text;
}

}  // namespace divvy::plan
