#include "measure/closed_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "kserve/http_infer.h"

namespace divvy::measure {
namespace {

constexpr Duration kLookEvery = std::chrono::milliseconds(100);
constexpr Duration kMostRound = std::chrono::milliseconds(50);
// A batch that takes longer is lost.
constexpr Duration kMostBatch = std::chrono::minutes(5);
// Of the time for a point, what warming up may take.
constexpr int kWarmingParts = 4;

Error Refusal(const net::HttpResponse& answer) {
  const bool theirs = answer.status >= 500;
  return {theirs ? ErrorCode::kFailedPrecondition : ErrorCode::kInvalidArgument,
          fmt::format("HTTP {}: {}", answer.status, kserve::ParseErrorJson(answer.body.view()))};
}

}  // namespace

ClosedLoop::ClosedLoop(net::Loop& loop, std::vector<server::Backend*> backends, Meter* meter,
                       std::function<Result<void>()> check)
    : loop_(loop), backends_(std::move(backends)), meter_(meter), check_(std::move(check)) {}

Result<Measured> ClosedLoop::Run(const client::Call& batch, const Pace& pace) {
  now_ = {};
  now_.batch = {
      .method = batch.verb, .target = batch.target, .headers = batch.headers, .body = batch.body};
  now_.pace = &pace;
  now_.begun = now_.last_answer = loop_.Clock();
  for (server::Backend* const backend : backends_) Send(*backend);
  auto measured = Await();
  // Answers to what is given up must not come back to a Run that is over.
  if (now_.in_flight > 0) {
    for (server::Backend* const backend : backends_) backend->Abandon();
  }
  return measured;
}

void ClosedLoop::Send(server::Backend& backend) {
  ++now_.in_flight;
  const TimePoint sent = loop_.Clock();
  const std::array<const net::HttpQuestion*, 1> batch = {&now_.batch};
  backend.Run(batch, [this, &backend, sent, counts = now_.measuring](
                         const Result<std::vector<net::HttpResponse>>& answers) {
    Take(backend, sent, counts, answers);
  });
}

void ClosedLoop::Take(server::Backend& backend, TimePoint sent, bool counts,
                      const Result<std::vector<net::HttpResponse>>& answers) {
  --now_.in_flight;
  now_.last_answer = loop_.Clock();
  if (!answers) {
    now_.failure = answers.error();
    return;
  }
  if (answers->front().status != 200) {
    now_.failure = Refusal(answers->front());
    return;
  }
  const double ms = Milliseconds(now_.last_answer - sent);
  if (!now_.measuring) {
    Warm(ms);
  } else if (counts && !now_.done) {
    Count(ms);
  }
  if (!now_.done) Send(backend);
}

void ClosedLoop::Warm(double ms) {
  now_.warming.push_back(ms);
  const bool all = now_.warming.size() >= backends_.size();
  const bool long_enough = now_.last_answer - now_.begun >= now_.pace->limit / kWarmingParts;
  if (!all || !(long_enough || HasSettled(now_.warming))) return;
  now_.measuring = true;
  if (meter_ != nullptr) meter_->Begin();
  now_.begun = loop_.Clock();
}

void ClosedLoop::Count(double ms) {
  Samples& samples = now_.measured.samples;
  samples.Add(ms);
  if (samples.count() < now_.next_look && now_.last_answer - now_.begun < now_.pace->limit) return;
  // Looking costs as much as there are samples.
  now_.next_look = samples.count() + std::max<std::size_t>(1, samples.count() / 16);
  if (!samples.Enough(*now_.pace, now_.last_answer - now_.begun)) return;
  now_.done = true;
  now_.measured.elapsed = now_.last_answer - now_.begun;
  if (meter_ != nullptr) now_.measured.usage = meter_->End(now_.measured.elapsed);
}

Result<Measured> ClosedLoop::Await() {
  TimePoint looked = now_.begun;
  while (now_.in_flight > 0) {
    if (auto fine = check_(); !fine) return Fail(fine.error());
    loop_.Round(kMostRound);
    if (now_.failure) return Fail(*now_.failure);
    const TimePoint now = loop_.now();
    if (now - now_.last_answer > kMostBatch) {
      return Fail(ErrorCode::kUnavailable,
                  fmt::format("no answer to a batch within {:.0f} s", Seconds(kMostBatch)));
    }
    if (meter_ != nullptr && now_.measuring && !now_.done && now - looked > kLookEvery) {
      looked = now;
      meter_->Look();
    }
  }
  return std::move(now_.measured);
}

}  // namespace divvy::measure
