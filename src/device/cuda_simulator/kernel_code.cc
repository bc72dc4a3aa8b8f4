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

// Of PTX, what goes wrong when it is written by hand: directives, entries and their parameters.
// Nobody reads the instructions.
[[nodiscard]] Result<std::vector<KernelCode>> ParsePtx(std::string_view text) {
  const auto wrong = [](const std::string& what) {
    return Fail(ErrorCode::kInvalidArgument, "PTX module: " + what);
  };
  constexpr std::string_view kSpace = " \t\r\n";
  constexpr std::string_view kEntry = ".entry";
  if (text.find(".target sm_") == std::string_view::npos) return wrong("no .target");
  if (std::ranges::count(text, '{') != std::ranges::count(text, '}')) return wrong("braces");
  std::vector<KernelCode> kernels;
  for (std::size_t at = text.find(kEntry); at < text.size(); at = text.find(kEntry)) {
    text.remove_prefix(at + kEntry.size());
    const std::size_t open = text.find('(');
    const std::size_t close = text.find(')');
    if (close == std::string_view::npos || open > close) return wrong("an .entry without ( )");
    std::string_view head = text.substr(0, open);
    std::string_view parameters = text.substr(open + 1, close - open - 1);
    text.remove_prefix(close + 1);
    if (const auto name = TakeWord(head, kSpace); name != "divvy_hold") {
      return wrong("'" + std::string(name) + "' is no kernel that the simulator knows");
    }
    for (const std::string_view type : {".u64", ".u32", ".u32"}) {
      std::string_view parameter = TakeWord(parameters, ",");
      if (TakeWord(parameter, kSpace) != ".param" || TakeWord(parameter, kSpace) != type) {
        return wrong("divvy_hold takes a .u64 and two .u32");
      }
    }
    if (!parameters.empty()) return wrong("divvy_hold takes three parameters");
    text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
    if (!text.starts_with('{')) return wrong("divvy_hold has no body");
    kernels.push_back({.name = "divvy_hold", .is_hold = true});
  }
  if (kernels.empty()) return wrong("no .entry");
  return kernels;
}

}  // namespace

Result<std::vector<KernelCode>> ParseKernels(std::string_view text) {
  if (text.starts_with(".version")) return ParsePtx(text);
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
