#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "kserve/describe.h"
#include "net/byte_budget.h"
#include "net/http.h"
#include "net/slice.h"
#include "server/generation.h"
#include "server/log.h"
#include "server/metrics.h"

namespace divvy::server {

// What the server is told about itself, once.
struct ServiceOptions {
  std::string name = "divvy";
  std::string version;
  std::string token;           // Not empty: requests must carry "Authorization: Bearer TOKEN".
  bool shed_with_503 = false;  // In place of 429, for clients that expect Triton's.
  std::size_t body_bytes = 64 << 20;  // After decompression too.
  // Of requests that come or are under way, and of answers that clients have not taken, together.
  std::size_t pending_bytes = std::size_t{2} << 30;
};

// What both transports answer from: the present generation, and the metrics. One for the server's
// life.
struct Service {
  ServiceOptions options;
  Log* access_log = nullptr;  // Null: requests are not logged.
  Metrics metrics;
  std::shared_ptr<Generation> generation;   // Null until the first is made.
  std::shared_ptr<net::ByteBudget> budget;  // Of pending_bytes; shared with the transports.
  bool draining = false;                    // On the way out: not ready any more.

  [[nodiscard]] bool ready() const {
    return !draining && generation != nullptr && generation->AllModelsReady();
  }
  // What a request under way, and each slice of an answer that waits, take besides their bytes:
  // many small ones must count, too.
  static constexpr std::size_t kPerRequest = 2 << 10;
  static constexpr std::size_t kPerSlice = 256;
  // Counts so many bytes of a request as held for as long as what it returns lives.
  // kResourceExhausted when there are too many.
  [[nodiscard]] Result<std::shared_ptr<const void>> Hold(std::size_t bytes) const;
  // The same for an answer, until its bytes are sent.
  [[nodiscard]] Result<void> HoldAnswer(std::vector<net::Slice>& body) const;

  // A line of the access log about an inference, if there is one.
  void LogAccess(std::string_view protocol, std::string_view model, std::string_view status,
                 Duration took) const;

  [[nodiscard]] kserve::ServerMetadata Describe() const;
  [[nodiscard]] kserve::ModelConfig ConfigOf(const Generation::Model& model) const;
  // Of one model, or of all.
  [[nodiscard]] std::vector<kserve::ModelStatistics> Statistics(
      const Generation::Model* model) const;
  [[nodiscard]] std::vector<kserve::IndexEntry> Index(bool ready_only) const;
};

// True if `given`, a header's value, is "Bearer TOKEN". Takes as long for every wrong token.
[[nodiscard]] bool HasToken(std::string_view given, std::string_view token);

// Parameters that say where a request waited, ran and how long.
[[nodiscard]] kserve::Parameters TimingOf(const Answer& answer, TimePoint arrival,
                                          TimePoint deadline, const std::string& partition);

// A refusal in words, and by our codes.
[[nodiscard]] Error ErrorOf(serving::Refusal why, const Generation::Model& model);

}  // namespace divvy::server
