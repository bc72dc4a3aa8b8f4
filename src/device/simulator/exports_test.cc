#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "device/simulator/function_names.h"
#include "device/simulator/nvml_client.h"

namespace divvy::device::simulator {
namespace {

// The names that `nm -D` lists as defined.
std::vector<std::string> Exports(const std::string& library) {
  std::vector<std::string> names;
  std::FILE* pipe = popen(("nm -D --defined-only --format=posix " + library).c_str(), "r");
  if (pipe == nullptr) {
    ADD_FAILURE() << "nm does not start";
    return names;
  }
  char name[256];
  char rest[1024];
  while (std::fscanf(pipe, "%255s%1023[^\n]", name, rest) == 2) {
    names.emplace_back(name);
  }
  EXPECT_EQ(pclose(pipe), 0);
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> Strings(std::span<const std::string_view> names) {
  return {names.begin(), names.end()};
}

TEST(ExportsTest, LibraryExportsNvmlAndNothingElse) {
  EXPECT_EQ(Exports(NvmlClient::LibraryPath()), Strings(FunctionNames()));
}

TEST(ExportsTest, OldLibraryLacksTheNewerFunctions) {
  std::vector<std::string> expected = Strings(FunctionNames());
  for (const std::string& newer : Strings(NewerFunctionNames())) {
    ASSERT_EQ(std::erase(expected, newer), 1U) << newer;
  }
  EXPECT_EQ(Exports(NvmlClient::OldLibraryPath()), expected);

  const NvmlClient old(NvmlClient::OldLibraryPath());
  EXPECT_EQ(old.gi_profile_v, nullptr);
  EXPECT_EQ(old.mps_processes, nullptr);
  EXPECT_NE(old.compute_processes_v2, nullptr);
}

}  // namespace
}  // namespace divvy::device::simulator
