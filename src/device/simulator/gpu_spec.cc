#include "device/simulator/gpu_spec.h"

#include <fmt/format.h>

#include <charconv>

#include "gpu/catalogue.h"

namespace divvy::device::simulator {
namespace {

constexpr int kMostGpus = 64;
constexpr std::string_view kMigSuffix = "+mig";

// The number after ':', 1 without one, or nothing when it is no fit number.
std::optional<int> ParseCount(std::string_view item, std::size_t colon) {
  if (colon == std::string_view::npos) return 1;
  int count = 0;
  const char* end = item.data() + item.size();
  const auto [stop, error] = std::from_chars(item.data() + colon + 1, end, count);
  if (error != std::errc() || stop != end || count < 1 || count > kMostGpus) return std::nullopt;
  return count;
}

}  // namespace

Result<State> ParseGpuSpec(std::string_view text) {
  State state;
  for (std::size_t comma = 0; comma != std::string_view::npos;) {
    comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    if (comma != std::string_view::npos) text.remove_prefix(comma + 1);
    const std::size_t colon = item.find(':');
    const auto count = ParseCount(item, colon);
    if (!count) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("GPUs '{}': what follows ':' must be 1 to {}", item, kMostGpus));
    }
    std::string_view name = item.substr(0, colon);
    const bool mig = name.ends_with(kMigSuffix);
    if (mig) name.remove_suffix(kMigSuffix.size());
    const auto model = gpu::FindGpuModel(name);
    if (!model) return Fail(model.error());
    for (int i = 0; i < *count; ++i) {
      Gpu gpu{*model, GpuUuid(**model, state.gpus.size())};
      gpu.mig = gpu.mig_pending = mig;
      state.gpus.push_back(std::move(gpu));
    }
  }
  if (state.gpus.size() > kMostGpus) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("a simulated node holds at most {} GPUs", kMostGpus));
  }
  return state;
}

}  // namespace divvy::device::simulator
