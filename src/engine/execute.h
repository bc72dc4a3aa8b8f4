#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "engine/engine.h"
#include "net/http.h"
#include "net/slice.h"

namespace divvy::engine {

// An inference request as it came over HTTP.
struct Question {
  net::Slice body;
  std::optional<std::size_t> header_length;  // Inference-Header-Content-Length.
  std::optional<Error> fault;                // What its head had wrong: it only gets this said.
};

// Where the time of a run went.
struct RunTimes {
  Duration input{};   // From bodies to the batch.
  Duration infer{};   // The engine's.
  Duration output{};  // From its outputs to answers.
};

// A run of the engine, for the statistics.
struct RunRecord {
  RunTimes times;
  std::int64_t items = 0;
  std::uint64_t requests = 0;
  std::uint64_t failed = 0;  // Of them.
  Duration held_back{};      // Of the time to infer: what is yet to pass.
};

struct Execution {
  std::vector<net::HttpAnswer> answers;  // One for each question, in their order.
  std::vector<RunRecord> runs;
  std::uint64_t refused = 0;  // Questions that took part in no run.
  Duration held_back{};       // How long the answers are to wait: Engine::held_back of all runs.
};

// {"error": ...} with the status that the code stands for. Without an engine's times: zeros.
[[nodiscard]] net::HttpAnswer ErrorAnswer(const Error& error);
// The headers of every answer to an inference: where its run's time went, and its items.
void AddRunHeaders(net::HttpAnswer& answer, const RunTimes& times, std::int64_t items);

// Runs questions that came as one batch: together where they fit, one after the other where they do
// not. A malformed one gets its own error, and the others run. In a thread that may run the engine.
[[nodiscard]] Execution Execute(Engine& engine, std::span<const Question> questions);

}  // namespace divvy::engine
