#pragma once

#include <dlfcn.h>

#include <string>

#include "gate/cuda_abi.h"

// What the checks of divvy-gate-probe have in common.

namespace divvy::tests {

// Ends the program with 1 and says where, unless it is so.
void Expect(bool is_so, const char* what, int line);
void Must(cuda::Result result, const char* what, int line);
#define EXPECT_THAT_IT(condition) Expect((condition), #condition, __LINE__)
#define MUST(name, ...) Must(Call(name, ##__VA_ARGS__), name, __LINE__)

// The driver's function of that name as the loader finds it, noted as one that was called.
void* Find(const char* name);

template <typename... Arguments>
cuda::Result Call(const char* name, Arguments... arguments) {
  return reinterpret_cast<cuda::Result (*)(Arguments...)>(Find(name))(arguments...);
}

// For calls that come in several forms: `name` and `ending` make the whole name.
template <typename... Arguments>
void MustForm(int line, const std::string& name, const std::string& ending,
              Arguments... arguments) {
  const std::string whole = name + ending;
  Must(Call(whole.c_str(), arguments...), whole.c_str(), line);
}
#define MUST_FORM(name, ending, ...) MustForm(__LINE__, name, ending, ##__VA_ARGS__)

// Made by the program's beginning: the primary context, current to the main thread, and a kernel of
// 200 us.
extern cuda::Context context;
extern cuda::Function kernel;

cuda::Result Launch(cuda::Stream stream);
// Into the default stream.
void LaunchAndWait();

// The parts of the program that are in other files.
void CheckMemory(std::size_t quota);
void CheckContexts();
void CheckForms();
void ForkWhileAllocating();

}  // namespace divvy::tests
