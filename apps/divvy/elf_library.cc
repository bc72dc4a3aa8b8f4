#include "elf_library.h"

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>
#include <utility>

namespace divvy::app {
namespace {

constexpr std::uintmax_t kMostBytes = 64 << 20;  // More than we would read at once.

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

}  // namespace

bool IsLibraryWith(std::string_view symbol, const std::string& path) {
  std::error_code error;
  const bool regular = std::filesystem::is_regular_file(path, error);
  const std::uintmax_t size = regular ? std::filesystem::file_size(path, error) : 0;
  if (error || size > kMostBytes) return false;
  std::string bytes(size, '\0');
  std::ifstream stream(path, std::ios::binary);
  if (!stream.read(bytes.data(), static_cast<std::streamsize>(size))) return false;
  const ElfFile file(std::move(bytes));
  const auto head = file.Get<Elf64_Ehdr>(0);
  return head && IsWholeLibrary(file, *head) && Defines(file, *head, symbol);
}

}  // namespace divvy::app
