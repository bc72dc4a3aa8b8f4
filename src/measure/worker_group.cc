#include "measure/worker_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/check.h"

namespace divvy::measure {
namespace {

constexpr Duration kLookAtWorkers = std::chrono::milliseconds(50);
constexpr Duration kMostFinish = std::chrono::seconds(12);

}  // namespace

WorkerGroup::WorkerGroup(net::Loop& loop, std::vector<server::WorkerSpec> specs)
    : loop_(loop), sink_(open_memstream(&said_, &said_bytes_)), log_(sink_) {
  divvy::Check(sink_ != nullptr, "there is memory for a log");
  backends_.resize(specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    server::WorkerProcess::Events events{
        .up =
            [this, i](std::unique_ptr<server::Backend> backend, const kserve::ModelMetadata&) {
              if (backends_[i] == nullptr) backends_[i] = std::move(backend);
            },
        .down = [this] { lost_ = true; },
        .restarted = [this] { lost_ = true; }};
    processes_.push_back(std::make_unique<server::WorkerProcess>(loop_, std::move(specs[i]), log_,
                                                                 std::move(events)));
  }
}

WorkerGroup::~WorkerGroup() {
  backends_.clear();
  processes_.clear();
  std::fclose(sink_);
  std::free(said_);  // NOLINT: open_memstream's.
}

std::string WorkerGroup::Said() const {
  std::fflush(sink_);
  std::string text(said_, said_bytes_);
  while (text.ends_with('\n')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

Result<void> WorkerGroup::Check() const {
  if (!lost_) return {};
  return Fail(ErrorCode::kUnavailable, fmt::format("a worker ended: {}", Said()));
}

Result<void> WorkerGroup::Start(const std::function<Result<void>()>& check, Duration patience) {
  const TimePoint end = loop_.Clock() + patience;
  for (const auto& process : processes_) process->Start();
  while (std::ranges::any_of(backends_, [](const auto& backend) { return backend == nullptr; })) {
    if (auto fine = Check(); !fine) return fine;
    if (auto fine = check(); !fine) return fine;
    if (loop_.Clock() > end) {
      return Fail(ErrorCode::kUnavailable,
                  fmt::format("a worker was not ready within {:.0f} s", Seconds(patience)));
    }
    loop_.Round(kLookAtWorkers);
  }
  return {};
}

void WorkerGroup::Finish() {
  for (const auto& backend : backends_) {
    if (backend != nullptr) backend->Abandon();
  }
  for (const auto& process : processes_) process->Stop();
  const TimePoint end = loop_.Clock() + kMostFinish;
  while (loop_.Clock() < end &&
         std::ranges::any_of(processes_, [](const auto& process) { return process->running(); })) {
    loop_.Round(kLookAtWorkers);
  }
}

std::vector<server::Backend*> WorkerGroup::backends() const {
  std::vector<server::Backend*> all;
  for (const auto& backend : backends_) all.push_back(backend.get());
  return all;
}

}  // namespace divvy::measure
