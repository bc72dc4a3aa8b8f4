#include "device/cuda_simulator/process.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>

#include "device/cuda_simulator/words.h"

namespace divvy::device::cuda_simulator {

std::optional<std::uint64_t> BirthOf(pid_t pid) {
  char buffer[512];
  std::snprintf(buffer, sizeof(buffer), "/proc/%d/stat", static_cast<int>(pid));
  const int descriptor = open(buffer, O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return std::nullopt;
  const ssize_t length = read(descriptor, buffer, sizeof(buffer));
  close(descriptor);
  if (length <= 0) return std::nullopt;
  std::string_view text(buffer, static_cast<std::size_t>(length));
  // The second field is the program's name in parentheses, which may hold anything.
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string_view::npos) return std::nullopt;
  text.remove_prefix(name_end + 1);
  const std::string_view state = TakeWord(text, " ");
  if (state == "Z" || state == "X") return std::nullopt;
  constexpr int kStateField = 3;
  constexpr int kStartField = 22;
  for (int field = kStateField + 1; field < kStartField; ++field) TakeWord(text, " ");
  return ToNumber<std::uint64_t>(TakeWord(text, " "));
}

}  // namespace divvy::device::cuda_simulator
