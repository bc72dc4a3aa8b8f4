#include "run_library.h"

#include <elf.h>
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <utility>

#include "base/text_safety.h"

namespace divvy::app {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kMostBytes = 64 << 20;  // The gate has one or two MB.

// Bytes of a file as ELF lays them out; asking beyond the end gives nothing.
class ElfFile {
 public:
  explicit ElfFile(std::string bytes) : bytes_(std::move(bytes)) {}

  bool Holds(std::uint64_t at, std::uint64_t size) const {
    return at <= bytes_.size() && size <= bytes_.size() - at;
  }

  template <typename T>
  std::optional<T> Get(std::uint64_t at) const {
    if (!Holds(at, sizeof(T))) return {};
    T value;
    std::memcpy(&value, bytes_.data() + at, sizeof value);
    return value;
  }

  std::string_view Text(std::uint64_t at) const {
    if (at >= bytes_.size()) return {};
    const std::string_view rest = std::string_view(bytes_).substr(at);
    return rest.substr(0, rest.find('\0'));
  }

 private:
  std::string bytes_;
};

// Of this machine's kind, and nothing of what is to be loaded is cut off.
bool IsWholeLibrary(const ElfFile& file, const Elf64_Ehdr& head) {
  if (std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
      head.e_type != ET_DYN || head.e_machine != EM_X86_64) {
    return false;
  }
  for (std::uint64_t i = 0; i < head.e_phnum; ++i) {
    const auto part = file.Get<Elf64_Phdr>(head.e_phoff + i * sizeof(Elf64_Phdr));
    if (!part || (part->p_type == PT_LOAD && !file.Holds(part->p_offset, part->p_filesz))) {
      return false;
    }
  }
  return true;
}

bool Defines(const ElfFile& file, const Elf64_Ehdr& head, std::string_view name) {
  const auto section = [&](std::uint64_t i) {
    return file.Get<Elf64_Shdr>(head.e_shoff + i * sizeof(Elf64_Shdr));
  };
  for (std::uint64_t i = 0; i < head.e_shnum; ++i) {
    const auto symbols = section(i);
    if (!symbols || symbols->sh_type != SHT_DYNSYM) continue;
    const auto names = section(symbols->sh_link);
    if (!names || !file.Holds(symbols->sh_offset, symbols->sh_size)) return false;
    for (std::uint64_t at = 0; at < symbols->sh_size; at += sizeof(Elf64_Sym)) {
      const auto symbol = file.Get<Elf64_Sym>(symbols->sh_offset + at);
      if (symbol && symbol->st_shndx != SHN_UNDEF &&
          file.Text(names->sh_offset + symbol->st_name) == name) {
        return true;
      }
    }
  }
  return false;
}

// Of another library the loader would say a warning at most, and the job would run without a gate.
bool IsGate(const std::string& path) {
  std::error_code error;
  const bool regular = fs::is_regular_file(path, error);
  const std::uintmax_t size = regular ? fs::file_size(path, error) : 0;
  if (error || size > kMostBytes) return false;
  std::string bytes(size, '\0');
  std::ifstream stream(path, std::ios::binary);
  if (!stream.read(bytes.data(), static_cast<std::streamsize>(size))) return false;
  const ElfFile file(std::move(bytes));
  const auto head = file.Get<Elf64_Ehdr>(0);
  return head && IsWholeLibrary(file, *head) && Defines(file, *head, "divvy_request_begin");
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
