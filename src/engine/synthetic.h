#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/service_times.h"

namespace divvy::engine {

// Stands in for a model: takes the time that it is told a batch takes, and computes nothing. Its
// metadata and config say so. For rehearsals of a deployment, demonstrations and tests.
//
// Outputs have the declared shapes. Their elements count up, modulo 101, from a number that is made
// of the first bytes of the item's first input, so that an item's answer is the same in every batch
// and differs from other items'.
class SyntheticEngine final : public Engine {
 public:
  // kInvalidArgument: nothing declared, or an output with a dimension of any size.
  [[nodiscard]] static Result<std::unique_ptr<SyntheticEngine>> Make(const EngineConfig& config,
                                                                     ServiceTimes times);

  const Description& description() const override { return description_; }
  [[nodiscard]] Result<std::vector<Output>> Run(std::span<const kserve::Tensor> inputs) override;
  std::optional<Duration> held_back() const override { return held_back_; }

 private:
  SyntheticEngine(Description description, ServiceTimes times)
      : description_(std::move(description)), times_(std::move(times)) {}

  Description description_;
  ServiceTimes times_;
  Duration held_back_{};
  // For each output: an item's elements, and 101 more, so that every start is in it.
  std::vector<std::string> patterns_;
};

}  // namespace divvy::engine
