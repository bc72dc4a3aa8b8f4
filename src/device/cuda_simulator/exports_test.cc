#include <dlfcn.h>

#include <array>
#include <cctype>
#include <cstdio>
#include <set>
#include <string>

#include "device/cuda_simulator/test_program.h"

namespace divvy::device::cuda_simulator {
namespace {

// What `nm` lists of the library, which the build names.
std::set<std::string> Exported() {
  std::set<std::string> names;
  FILE* listing = popen("nm -D --defined-only " DIVVY_CUDA_SIM_LIBRARY, "r");
  EXPECT_NE(listing, nullptr);
  if (listing == nullptr) return names;
  std::array<char, 512> line{};
  while (std::fgets(line.data(), line.size(), listing) != nullptr) {
    std::string text(line.data());
    while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
    names.insert(text.substr(text.rfind(' ') + 1));
  }
  EXPECT_EQ(pclose(listing), 0);
  return names;
}

// The name that look-ups know an export by.
std::string NameOf(std::string symbol) {
  for (const char* ending : {"_ptsz", "_ptds", "_v2", "_v3", "_v4"}) {
    const std::string text = ending;
    if (symbol.ends_with(text)) symbol.resize(symbol.size() - text.size());
  }
  return symbol;
}

using ExportsTest = CudaSimTest;

TEST_F(ExportsTest, NothingButTheDriverAndAllOfItIsFoundByName) {
  std::set<std::string> names = Exported();
  EXPECT_EQ(names.erase("divvy_sim_rm_control"), 1U) << "of ours, and no function of CUDA's";
  EXPECT_GT(names.size(), 190U);
  Run([&] {
    void* library = dlopen(DIVVY_CUDA_SIM_LIBRARY, RTLD_NOW);
    ASSERT_NE(library, nullptr) << dlerror();
    for (const std::string& symbol : names) {
      ASSERT_TRUE(symbol.starts_with("cu")) << symbol;
      bool found = false;
      for (int version = 2000; version <= 13000 && !found; version += 10) {
        for (const std::uint64_t flags : {0, 2}) {
          void* address = nullptr;
          const auto result =
              cuGetProcAddress_v2(NameOf(symbol).c_str(), &address, version, flags, nullptr);
          found |= result == cuda::kSuccess && address == dlsym(library, symbol.c_str());
        }
      }
      EXPECT_TRUE(found) << symbol;
    }
  });
}

}  // namespace
}  // namespace divvy::device::cuda_simulator
