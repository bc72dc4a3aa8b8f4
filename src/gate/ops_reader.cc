#include "gate/ops_reader.h"

#include <array>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

namespace divvy::gate {
namespace {

// Of text that a foreign process wrote.
std::string TextOf(const char* text, std::size_t most) {
  return std::string(text, strnlen(text, most));
}

}  // namespace

OpsReader::OpsReader(std::string directory, bool keep_samples)
    : directory_(std::move(directory)), record_(keep_samples) {}

OpsReader::~OpsReader() {
  for (auto& [name, source] : sources_) CloseOpsLog(source.log);
}

void OpsReader::FindNew(bool last) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory_, error)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("ops-") || sources_.contains(name) || refused_.contains(name)) continue;
    std::array<char, 512> reason{};
    OpsLog* const log = OpenOpsLog(entry.path().c_str(), reason.data(), reason.size());
    if (log == nullptr) {
      // It may be under way, and be whole at the next look.
      if (last && refused_.insert(name).second) notes_.emplace_back(reason.data());
      continue;
    }
    const std::size_t process =
        record_.AddProcess({.pid = log->pid,
                            .parent = log->parent,
                            .program = TextOf(log->program, sizeof log->program),
                            .start_ns = log->start_ns});
    sources_.emplace(name, Source{log, process, {}});
  }
}

void OpsReader::Read(Source& source, bool ended) {
  const std::uint32_t kinds = CountOpKinds(*source.log);
  for (auto kind = static_cast<std::uint32_t>(source.ops.size()); kind < kinds; ++kind) {
    source.ops.push_back(record_.AddOp(source.process, source.log->kinds[kind].facts,
                                       NameOfOpKind(*source.log, kind)));
  }
  for (std::uint32_t kind = 0; kind < kinds; ++kind) {
    record_.CountTo(source.ops[kind],
                    source.log->kinds[kind].launches.load(std::memory_order_relaxed));
  }
  // No more than the ring holds: a program that goes on must not keep us here.
  OpSample sample;
  for (std::uint32_t i = 0; i < kOpSamples && TakeOpSample(*source.log, ended, sample); ++i) {
    if (sample.kind < source.ops.size()) record_.AddSample(source.ops[sample.kind], sample);
  }
  record_.SetLogState(source.process,
                      {.unnoted = source.log->unnoted.load(std::memory_order_relaxed),
                       .dropped = source.log->dropped.load(std::memory_order_relaxed),
                       .timing_ns = source.log->timing_ns.load(std::memory_order_relaxed),
                       .let_go = source.log->let_go.load(std::memory_order_relaxed)});
}

void OpsReader::ReadLast(const std::string& name, Source& source) {
  Read(source, true);
  CloseOpsLog(source.log);
  std::error_code error;
  std::filesystem::remove(std::filesystem::path(directory_) / name, error);
  // One that cannot be removed is not to be found anew, and counted twice.
  if (error) refused_.insert(name);
}

void OpsReader::Look(std::uint64_t now_ns) {
  FindNew(false);
  for (auto at = sources_.begin(); at != sources_.end();) {
    auto& [name, source] = *at;
    // Asked first: what it wrote until then is all there was.
    if (HasEnded(*source.log)) {
      ReadLast(name, source);
      at = sources_.erase(at);
    } else {
      Read(source, false);
      ++at;
    }
  }
  record_.EndInterval(now_ns);
}

void OpsReader::Finish(std::uint64_t now_ns) {
  FindNew(true);
  for (auto& [name, source] : sources_) Read(source, true);
  record_.EndInterval(now_ns);
}

}  // namespace divvy::gate
