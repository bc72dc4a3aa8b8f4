#include "run_library.h"

#include <elf.h>
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/text_safety.h"

namespace divvy::app {
namespace {

namespace fs = std::filesystem;

// A library of this machine's kind with the gate's own functions. The loader would say no more of
// another than a warning, and the job would run beside the gate.
bool IsGate(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return false;  // Others may never end.
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  Elf64_Ehdr head;
  if (bytes.size() < sizeof head) return false;
  std::memcpy(&head, bytes.data(), sizeof head);
  if (std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
      head.e_type != ET_DYN || head.e_machine != EM_X86_64) {
    return false;
  }
  for (std::size_t i = 0; i < head.e_phnum; ++i) {
    const std::size_t at = head.e_phoff + i * sizeof(Elf64_Phdr);
    Elf64_Phdr part;
    if (at > bytes.size() - sizeof part) return false;
    std::memcpy(&part, bytes.data() + at, sizeof part);
    if (part.p_type == PT_INTERP) return false;  // A program, such as this one.
  }
  return bytes.find(std::string_view("\0divvy_request_begin\0", 21)) != std::string::npos;
}

Result<std::string> Preloadable(const std::string& path) {
  // The loader splits the variable at both.
  if (path.find_first_of(" :") != std::string::npos) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} cannot be preloaded: a path in LD_PRELOAD has no space or colon; "
                            "copy the library elsewhere and name it with --library",
                            Quoted(path)));
  }
  if (!IsGate(path)) {
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
  const bool alone = others == nullptr || *others == '\0';
  return alone ? library : fmt::format("{}:{}", library, others);
}

}  // namespace divvy::app
