#include "device/cuda_simulator/kernel_code.h"

#include <algorithm>

#include "device/cuda_simulator/words.h"

namespace divvy::device::cuda_simulator {
namespace {

constexpr std::string_view kBlanks = " \t\r";
constexpr double kLongestMicroseconds = 1e9;

auto Wrong(int line, std::string_view word, std::string_view right) {
  return Fail(ErrorCode::kInvalidArgument, "module line " + std::to_string(line) + ": '" +
                                               std::string(word) + "': " + std::string(right));
}

[[nodiscard]] Result<KernelCode> ParseKernel(std::string_view text, int line) {
  if (const auto word = TakeWord(text, kBlanks); word != "kernel") {
    return Wrong(line, word, "a line begins with 'kernel'");
  }
  KernelCode kernel;
  kernel.name = TakeWord(text, kBlanks);
  if (kernel.name.empty()) return Wrong(line, "kernel", "a name must follow");
  for (auto word = TakeWord(text, kBlanks); !word.empty(); word = TakeWord(text, kBlanks)) {
    const auto [key, value] = SplitKey(word);
    const auto number = ToNumber<double>(value.value_or(""));
    if (!number || *number < 0 || *number > kLongestMicroseconds) {
      return Wrong(line, word, "write key=number");
    }
    if (key == "us") {
      kernel.duration = static_cast<Nanos>(*number * kMicrosecond);
    } else if (key == "per_sm") {
      kernel.per_sm = static_cast<int>(*number);
    } else if (key == "param_us") {
      kernel.duration_is_parameter = *number != 0;
    } else {
      return Wrong(line, word, "the keys are us, per_sm and param_us");
    }
  }
  return kernel;
}

}  // namespace

Result<std::vector<KernelCode>> ParseKernels(std::string_view text) {
  std::vector<KernelCode> kernels;
  for (int line = 1; !text.empty(); ++line) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view whole = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::string_view code = whole.substr(0, whole.find('#'));
    if (code.find_first_not_of(kBlanks) == std::string_view::npos) continue;
    auto kernel = ParseKernel(code, line);
    if (!kernel) return Fail(kernel.error());
    kernels.push_back(std::move(*kernel));
  }
  return kernels;
}

}  // namespace divvy::device::cuda_simulator
