#include "device/cuda_simulator/spec.h"

#include <algorithm>
#include <string>

#include "device/cuda_simulator/words.h"

namespace divvy::device::cuda_simulator {
namespace {

auto Wrong(std::string_view word, std::string_view right) {
  return Fail(ErrorCode::kInvalidArgument,
              "'" + std::string(word) + "' in a machine's specification: " + std::string(right));
}

// A whole number in [low, high] into `field`.
template <typename T>
bool ReadNumber(std::string_view text, T low, T high, T& field) {
  const auto number = ToNumber<T>(text);
  if (!number || *number < low || *number > high) return false;
  field = *number;
  return true;
}

bool ReadBytes(std::string_view text, std::uint64_t& field) {
  int shift = 0;
  if (text.ends_with("GiB")) shift = 30;
  if (text.ends_with("MiB")) shift = 20;
  if (shift != 0) text.remove_suffix(3);
  std::uint64_t number = 0;
  const std::uint64_t limit = std::uint64_t{1} << 44;
  if (!ReadNumber<std::uint64_t>(text, 1, limit >> shift, number)) return false;
  field = number << shift;
  return true;
}

bool ReadMicroseconds(std::string_view text, Nanos low, Nanos& field) {
  Nanos number = 0;
  if (!ReadNumber<Nanos>(text, low, 1'000'000, number)) return false;
  field = number * kMicrosecond;
  return true;
}

bool ReadMode(std::string_view text, Sharing& field) {
  if (text != "mps" && text != "timeslice") return false;
  field = text == "mps" ? Sharing::kMps : Sharing::kTimeSlice;
  return true;
}

}  // namespace

Result<MachineSpec> ParseSpec(std::string_view text) {
  MachineSpec spec;
  for (auto word = TakeWord(text, " \t\n"); !word.empty(); word = TakeWord(text, " \t\n")) {
    const auto [key, value] = SplitKey(word);
    if (!value) return Wrong(word, "write key=value");
    if (key == "gpus") {
      if (!ReadNumber(*value, 1, kMaxGpus, spec.gpus)) return Wrong(word, "1 to 8 GPUs");
    } else if (key == "sms") {
      if (!ReadNumber(*value, 1, 1024, spec.sms)) return Wrong(word, "1 to 1024 SMs");
    } else if (key == "memory") {
      if (!ReadBytes(*value, spec.memory)) return Wrong(word, "write 8GiB, 512MiB or bytes");
    } else if (key == "mode") {
      if (!ReadMode(*value, spec.sharing)) return Wrong(word, "mps or timeslice");
    } else if (key == "slice_us") {
      if (!ReadMicroseconds(*value, 100, spec.slice)) return Wrong(word, "100 to 1000000");
    } else if (key == "switch_us") {
      if (!ReadMicroseconds(*value, 0, spec.switching)) return Wrong(word, "0 to 1000000");
    } else if (key == "driver") {
      if (!ReadNumber(*value, 11000, 99999, spec.driver)) return Wrong(word, "a version as 12040");
    } else {
      return Wrong(word, "the keys are gpus, sms, memory, mode, slice_us, switch_us and driver");
    }
  }
  return spec;
}

}  // namespace divvy::device::cuda_simulator
