#pragma once

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

namespace divvy::bench {

// The folder with other people's measurements, which are not part of this project:
// DIVVY_DATA. Nothing when it is not set.
inline std::optional<std::string> DataFolder() {
  const char* const folder = std::getenv("DIVVY_DATA");
  if (folder == nullptr || *folder == '\0') return std::nullopt;
  return folder;
}

// The whole of a file; empty when it cannot be read.
inline std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace divvy::bench
