#include "client/load_run.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/check.h"

namespace divvy::client {
namespace {

constexpr Duration kLongestRound = std::chrono::milliseconds(100);
constexpr Duration kSpin = std::chrono::microseconds(50);
// The first request is due a little after the start, so that it is not late by construction.
constexpr Duration kHeadStart = std::chrono::milliseconds(2);
// Answers wait while requests are sent; so many at once are the most that they wait for.
constexpr int kAtOnce = 32;
constexpr std::size_t kMostReasons = 64;

// Runs of digits become one '#'.
std::string KindOf(const std::string& reason) {
  std::string kind;
  for (const char c : reason) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (!digit) kind += c;
    if (digit && !kind.ends_with('#')) kind += '#';
  }
  return kind;
}

// The kernel may wake sleepers later by this "slack", 50 us for most programs, in order to wake
// several at once. We would rather be woken in time.
class ExactTimers {
 public:
  ExactTimers() : before_(prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0)) {
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
  }
  ~ExactTimers() {
    if (before_ > 0) prctl(PR_SET_TIMERSLACK, before_, 0, 0, 0);
  }
  ExactTimers(const ExactTimers&) = delete;
  ExactTimers& operator=(const ExactTimers&) = delete;

 private:
  int before_;
};

}  // namespace

LoadRun::LoadRun(net::Loop& loop, Transport& transport, Schedule schedule,
                 std::vector<Requests>& requests, RunOptions options)
    : loop_(loop),
      transport_(transport),
      schedule_(std::move(schedule)),
      requests_(requests),
      options_(std::move(options)) {
  Check(options_.slos.size() == requests_.size(), "an SLO, or none, for each model");
}

RunLog LoadRun::Run() {
  const ExactTimers exact;
  start_ = loop_.Clock() + schedule_.warm_up_length() + kHeadStart;
  next_ = schedule_.Next();
  while (true) {
    IssueDue();
    if (Over()) break;
    loop_.Round(UntilNext());
  }
  const Duration end = loop_.Clock() - start_;
  if (done_ < issued_) transport_.Drop();
  log_.cut_short = next_.has_value();
  // The warm-up's are the first.
  while (!log_.records.empty() && log_.records.front().scheduled < Duration::zero()) {
    log_.records.pop_front();
  }
  log_.elapsed = log_.cut_short ? std::min(end, schedule_.length()) : schedule_.length();
  for (Record& record : log_.records) {
    if (record.outcome == Outcome::kUnanswered) record.done = end;
    if (record.outcome == Outcome::kAnswered) log_.elapsed = std::max(log_.elapsed, record.done);
  }
  return std::move(log_);
}

void LoadRun::Stop() { ++stops_; }

bool LoadRun::Over() const {
  if (log_.gave_up || stops_ > 1) return true;
  const bool sending = next_.has_value() && stops_ == 0;
  if (sending) return false;
  return done_ == issued_ || (patience_ends_ && loop_.Clock() >= *patience_ends_);
}

Duration LoadRun::UntilNext() const {
  if (!next_ || stops_ > 0) return kLongestRound;
  Duration wait = start_ + next_->at - loop_.Clock();
  // In the last stretch the loop turns without sleeping, so answers are heard all the while.
  if (options_.precise) wait -= kSpin;
  return std::clamp(wait, Duration::zero(), kLongestRound);
}

void LoadRun::IssueDue() {
  for (int i = 0; i < kAtOnce && next_ && stops_ == 0; ++i) {
    if (loop_.Clock() < start_ + next_->at) return;
    Issue(*next_);
    next_ = schedule_.Next();
  }
  if ((!next_ || stops_ > 0) && !patience_ends_) {
    patience_ends_ = loop_.Clock() + options_.patience;
  }
}

void LoadRun::Issue(const Due& due) {
  ++issued_;
  const std::size_t index = log_.records.size();
  const Duration now = loop_.Clock() - start_;
  Record& record = log_.records.emplace_back();
  record.scheduled = due.at;
  record.issued = record.sent = now;
  record.model = due.model;
  record.items = due.items;
  issuing_ = index;
  transport_.Send(
      requests_[static_cast<std::size_t>(due.model)].Of(due.items),
      [this, index] {
        // At once is when it was issued; only waits are told apart.
        if (issuing_ != index) log_.records[index].sent = loop_.Clock() - start_;
      },
      [this, index](const Reply& reply) { Finish(index, reply); });
  issuing_.reset();
}

void LoadRun::Finish(std::size_t index, const Reply& reply) {
  ++done_;
  Record& record = log_.records[index];
  record.done = loop_.Clock() - start_;
  record.outcome = reply.outcome;
  const bool answered = reply.outcome == Outcome::kAnswered;
  if (!answered) record.reason = ReasonOf(reply.reason);
  if (record.scheduled < Duration::zero()) return;
  const auto& slo = options_.slos[static_cast<std::size_t>(record.model)];
  if (!answered || (slo && record.latency() > *slo)) ++bad_;
  if (options_.give_up_after && bad_ > *options_.give_up_after) log_.gave_up = true;
}

std::uint16_t LoadRun::ReasonOf(const std::string& reason) {
  const std::string kind = KindOf(reason);
  if (const auto known = kinds_.find(kind); known != kinds_.end()) return known->second;
  if (log_.reasons.size() == kMostReasons) return kMostReasons - 1;
  log_.reasons.push_back(log_.reasons.size() + 1 == kMostReasons ? "other reasons" : reason);
  return kinds_[kind] = static_cast<std::uint16_t>(log_.reasons.size() - 1);
}

}  // namespace divvy::client
