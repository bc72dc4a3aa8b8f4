#include "workload/trace_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "base/csv.h"
#include "base/text_safety.h"

namespace divvy::workload {
namespace {

constexpr std::string_view kWhat = "a trace";
constexpr std::array<std::string_view, 3> kColumns = {"arrival_s", "model", "batch"};
constexpr std::string_view kTimestamp = "TIMESTAMP";
constexpr std::string_view kContextTokens = "ContextTokens";

// Beyond these a number is a slip.
constexpr RealRange kSeconds{0, 1e8};
constexpr IntRange kBatches{1, kLargestBatch};
constexpr IntRange kTokens{0, 1'000'000'000};

using Drafts = std::map<std::string, std::vector<Arrival>, std::less<>>;

// Takes `count` digits off the front of `text`; nothing if they are not there.
std::optional<int> TakeDigits(std::string_view& text, std::size_t count) {
  if (text.size() < count) return std::nullopt;
  int number = 0;
  for (const char c : text.substr(0, count)) {
    if (c < '0' || c > '9') return std::nullopt;
    number = number * 10 + (c - '0');
  }
  text.remove_prefix(count);
  return number;
}

// Takes `mark` off the front of `text`; false if it is not there.
bool Take(std::string_view& text, std::string_view mark) {
  if (!text.starts_with(mark)) return false;
  text.remove_prefix(mark.size());
  return true;
}

// A field of a date or time: the mark before it and how many digits it has.
struct TimeField {
  std::string_view mark;
  std::size_t digits;
};
constexpr TimeField kTimeFields[] = {{"", 4}, {"-", 2}, {"-", 2}, {" ", 2}, {":", 2}, {":", 2}};

// "2023-11-16 18:17:03.9799600", with "+00:00" or "Z" or nothing after it, since 1970.
std::optional<Duration> ParseTimestamp(std::string_view text) {
  std::array<int, std::size(kTimeFields)> values{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!Take(text, kTimeFields[i].mark)) return std::nullopt;
    const auto value = TakeDigits(text, kTimeFields[i].digits);
    if (!value) return std::nullopt;
    values[i] = *value;
  }
  const auto [year, month, day, hour, minute, second] = values;
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  // Duration counts nanoseconds from 1970 and ends in 2262.
  if (!date.ok() || year < 1970 || year > 2200 || hour > 23 || minute > 59 || second > 59) {
    return std::nullopt;
  }
  Duration fraction{0};
  if (Take(text, ".")) {
    Duration unit = std::chrono::milliseconds(100);
    if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
    while (const auto digit = TakeDigits(text, 1)) {
      fraction += *digit * unit;
      unit /= 10;  // Digits beyond the nanosecond count nothing.
    }
  }
  if (!text.empty() && text != "Z" && text != "+00:00") return std::nullopt;
  return std::chrono::sys_days(date).time_since_epoch() + std::chrono::hours(hour) +
         std::chrono::minutes(minute) + std::chrono::seconds(second) + fraction;
}

void RefuseGoingBack(CsvReader& csv, std::size_t column, Duration before, Duration now) {
  if (now >= before) return;
  csv.Complain(fmt::format("{} is earlier than the row before; sort the rows by time",
                           Quoted(csv.Field(column))));
}

void ReadOwn(CsvReader& csv, Drafts& drafts) {
  csv.RefuseOthers(kColumns, kWhat);
  const std::size_t at = csv.Require("arrival_s", kWhat);
  const std::size_t model = csv.Require("model", kWhat);
  const std::size_t batch = csv.Require("batch", kWhat);
  Duration before{0};
  while (csv.NextRow()) {
    const Arrival arrival{FromSeconds(csv.Real(at, kSeconds)), csv.Integer(batch, kBatches)};
    const std::string_view name = csv.Field(model);
    if (!IsName(name)) csv.Complain(fmt::format("model: {} is not a name", Quoted(name)));
    RefuseGoingBack(csv, at, before, arrival.at);
    if (!csv.ok()) return;
    before = arrival.at;
    auto draft = drafts.find(name);  // By view: most rows name a model seen before.
    if (draft == drafts.end()) draft = drafts.emplace(name, std::vector<Arrival>()).first;
    draft->second.push_back(arrival);
  }
}

void ReadAzure(CsvReader& csv, TokenScale scale, Drafts& drafts) {
  const std::size_t timestamp = csv.Require(kTimestamp, kWhat);
  const std::size_t tokens = csv.Require(kContextTokens, kWhat);
  std::optional<Duration> start;
  Duration before{0};
  std::vector<Arrival> arrivals;
  while (csv.NextRow()) {
    const auto time = ParseTimestamp(csv.Field(timestamp));
    if (!time) {
      csv.Complain(fmt::format("{}: {} is not a time such as 2023-11-16 18:17:03.979960",
                               kTimestamp, Quoted(csv.Field(timestamp))));
      return;
    }
    if (!start) start = before = *time;
    RefuseGoingBack(csv, timestamp, before, *time);
    before = *time;
    // A request without context still has one item to work on.
    const int count = std::max(1, csv.Integer(tokens, kTokens));
    const int items = (count - 1) / scale.tokens_per_item + 1;
    if (items > kLargestBatch) {
      csv.Complain(fmt::format("{}: {} tokens are {} items of {}; a request has at most {}",
                               kContextTokens, count, items, scale.tokens_per_item, kLargestBatch));
    }
    arrivals.push_back({*time - *start, items});
  }
  if (!arrivals.empty()) drafts.emplace(std::string(), std::move(arrivals));
}

}  // namespace

Result<Trace> ParseTrace(std::string_view text, std::string_view file_name, TokenScale scale) {
  if (scale.tokens_per_item < 1) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} tokens an item; it must be at least 1", scale.tokens_per_item));
  }
  CsvReader csv(text, file_name);
  Drafts drafts;
  if (csv.Find(kTimestamp) || csv.Find(kContextTokens)) {
    ReadAzure(csv, scale, drafts);
  } else {
    ReadOwn(csv, drafts);
  }
  if (drafts.empty()) csv.Complain("the header is followed by no arrivals");
  if (!csv.ok()) return Fail(csv.error());

  Trace trace;
  for (auto& [model, arrivals] : drafts) {
    trace.length = std::max(trace.length, arrivals.back().at);
    trace.models.push_back({model, std::move(arrivals)});
  }
  return trace;
}

Result<BatchDistribution> BatchesOf(const ModelTrace& trace) {
  std::vector<double> counts;
  for (const Arrival& arrival : trace.arrivals) {
    const auto size = static_cast<std::size_t>(arrival.batch);
    if (counts.size() < size) counts.resize(size);
    ++counts[size - 1];
  }
  if (counts.empty()) {
    return Fail(ErrorCode::kInvalidArgument, "a trace without arrivals has no batch sizes");
  }
  return BatchDistribution::Empirical(counts);
}

}  // namespace divvy::workload
