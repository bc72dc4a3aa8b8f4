#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "divvy_engine.h"
#include "engine/engine.h"

namespace divvy::engine {

// An engine in a shared library (include/divvy_engine.h). What it says about itself and hands back
// is checked before it is believed: a bad engine ends in errors, short of writing where it may not.
class PluginEngine final : public Engine {
 public:
  // Loads the library and makes an instance, which may take as long as loading a model does. All in
  // the thread that runs it. kInvalidArgument and kUnavailable name the library and what it said.
  [[nodiscard]] static Result<std::unique_ptr<PluginEngine>> Make(const std::string& library,
                                                                  const EngineConfig& config);
  ~PluginEngine() override;
  PluginEngine(const PluginEngine&) = delete;
  PluginEngine& operator=(const PluginEngine&) = delete;

  const Description& description() const override { return description_; }
  [[nodiscard]] Result<std::vector<Output>> Run(std::span<const kserve::Tensor> inputs) override;

 private:
  PluginEngine(std::string library, const divvy_engine_functions& functions)
      : library_(std::move(library)), functions_(functions) {}
  [[nodiscard]] Result<void> Create(const EngineConfig& config);
  [[nodiscard]] Result<void> Describe(const EngineConfig& config);

  std::string library_;
  const divvy_engine_functions& functions_;
  divvy_engine_instance* instance_ = nullptr;
  Description description_;
};

}  // namespace divvy::engine
