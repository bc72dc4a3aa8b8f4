#include "state_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include "device/simulator/state_store.h"

namespace divvy::app {

namespace sim = device::simulator;

Result<std::string> EditStateFile(const std::string& path, const Edit& edit) {
  sim::StateStore store(path);
  // Before the lock, which would leave its file beside a mistyped name.
  if (const auto present = store.Read(); !present) return Fail(present.error());
  const sim::StateLock lock(path);
  const auto state = store.Read();
  if (!state) return Fail(state.error());
  sim::State changed = **state;
  auto done = edit(changed);
  if (!done) return done;
  if (const auto written = store.Write(std::move(changed)); !written) return Fail(written.error());
  return done;
}

Result<std::string> MakeStateFile(const std::string& path, const sim::State& state, bool replace) {
  const sim::StateLock lock(path);
  if (!replace && access(path.c_str(), F_OK) == 0) {
    return Fail(ErrorCode::kFailedPrecondition,
                fmt::format("{} exists; --force replaces it", path));
  }
  sim::StateStore store(path);
  if (const auto written = store.Write(state); !written) return Fail(written.error());
  return fmt::format("{}: {} GPU{}", path, state.gpus.size(), state.gpus.size() == 1 ? "" : "s");
}

Result<sim::State> ReadStateFile(const std::string& path) {
  // No lock: files are replaced in one step.
  sim::StateStore store(path);
  const auto state = store.Read();
  if (!state) return Fail(state.error());
  return **state;
}

}  // namespace divvy::app
