#include "run_library.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "base/text_safety.h"
#include "elf_library.h"

namespace divvy::app {
namespace {

namespace fs = std::filesystem;

Result<std::string> Preloadable(const std::string& path) {
  // The loader splits the variable at both.
  if (path.find_first_of(" :") != std::string::npos) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} cannot be preloaded: a path in LD_PRELOAD has no space or colon; "
                            "copy the library elsewhere and name it with --library",
                            Quoted(path)));
  }
  // Of another library the loader would say a warning at most, and the job would run without a
  // gate.
  if (!IsLibraryWith("divvy_request_begin", path)) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} is not the gate: --library names a libdivvy_gate.so for x86-64",
                            Quoted(path)));
  }
  return path;
}

}  // namespace

Result<std::string> FindGateLibrary(const std::string& given) {
  if (!given.empty()) return Preloadable(given);
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  const fs::path beside = program.parent_path();
  const std::array candidates = {
      beside / "../lib/divvy/libdivvy_gate.so",     // Installed.
      beside / "libdivvy_gate.so",                  // Unpacked in one folder.
      beside / "../../src/gate/libdivvy_gate.so"};  // Where CMake builds it.
  std::string looked;
  for (const fs::path& candidate : candidates) {
    const std::string path = candidate.lexically_normal();
    if (fs::is_regular_file(path, error)) return Preloadable(path);
    looked += (looked.empty() ? "" : ", ") + path;
  }
  return Fail(ErrorCode::kNotFound,
              fmt::format("the gate's library is not beside this program: looked for {}; name it "
                          "with --library or DIVVY_GATE_LIBRARY",
                          looked));
}

std::string PreloadedBefore(const std::string& library) {
  const char* const others = std::getenv("LD_PRELOAD");
  std::string_view rest = others == nullptr ? "" : others;
  // A run around this one has it there already.
  if (rest.starts_with(library) && (rest.size() == library.size() || rest[library.size()] == ':')) {
    rest.remove_prefix(std::min(rest.size(), library.size() + 1));
  }
  return rest.empty() ? library : fmt::format("{}:{}", library, rest);
}

}  // namespace divvy::app
