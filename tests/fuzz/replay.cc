// In libFuzzer's place where there is none:
//
//   TARGET_replay COUNT FOLDER..
//
// gives the target every file of the folders, then COUNT inputs made of them by chance, the same in
// every run. When one of them brings the target down, it is printed, ready for `xxd -r -p`.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
// Of the sanitizers' runtime, where one is linked.
extern "C" void __sanitizer_set_death_callback(void (*callback)()) __attribute__((weak));

namespace {

constexpr std::size_t kMostBytes = 4096;

std::string current;

void Say(std::string_view text) {
  [[maybe_unused]] const ssize_t put = write(STDERR_FILENO, text.data(), text.size());
}

// Also called from a signal's handler.
void ShowCurrent() {
  constexpr std::string_view kHex = "0123456789abcdef";
  Say("\nthe input was:\n");
  for (const char c : current) {
    const auto byte = static_cast<unsigned char>(c);
    const std::array<char, 2> digits = {kHex[byte >> 4], kHex[byte & 15]};
    Say({digits.data(), digits.size()});
  }
  Say("\n");
}

void Try(std::string input) {
  current = std::move(input);
  // Of exactly its size on the heap, so that a read beyond it is noticed.
  const std::vector<std::uint8_t> bytes(current.begin(), current.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

// By name, so that all machines see the same order.
std::vector<std::string> ReadFolders(int count, char** folders) {
  std::vector<std::filesystem::path> paths;
  for (int i = 0; i < count; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(folders[i])) {
      if (entry.is_regular_file()) paths.push_back(entry.path());
    }
  }
  std::ranges::sort(paths);
  std::vector<std::string> inputs;
  for (const std::filesystem::path& path : paths) {
    std::ifstream file(path, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return inputs;
}

class Mutator {
 public:
  Mutator(const std::vector<std::string>& inputs, std::uint64_t seed)
      : inputs_(inputs), random_(seed) {}

  std::string Next() {
    std::string input = Any();
    for (std::uint64_t edits = 1 + random_.Below(6); edits > 0; --edits) Edit(input);
    if (input.size() > kMostBytes) input.resize(kMostBytes);
    return input;
  }

 private:
  const std::string& Any() { return inputs_[random_.Below(inputs_.size())]; }
  // From 0 to the text's length, inclusive.
  std::size_t Place(const std::string& text) { return random_.Below(text.size() + 1); }
  std::size_t Length() { return 1 + random_.Below(random_.Below(4) == 0 ? 64 : 4); }

  char Byte() {
    // What lengths, ends and escapes are made of, as often as any other byte.
    constexpr std::string_view kTelling("\0\1\x7f\x80\xff\r\n\t \"\\/{}[]:,;-+.09eE%", 28);
    if (random_.Below(2) == 0) return kTelling[random_.Below(kTelling.size())];
    return static_cast<char>(random_.Below(256));
  }

  void Edit(std::string& text) {
    const std::size_t at = Place(text);
    const std::size_t length = std::min(Length(), text.size() - at);
    switch (random_.Below(6)) {
      case 0:
        text.erase(at, length);
        break;
      case 1:
        text.insert(at, 1, Byte());
        break;
      case 2:  // Once more, somewhere else.
        text.insert(Place(text), std::string(text, at, length));
        break;
      case 3: {  // A piece of another.
        const std::string& other = Any();
        const std::size_t from = Place(other);
        text.replace(at, length, other, from, Length());
        break;
      }
      case 4:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << random_.Below(8)));
        break;
      default:
        if (at < text.size()) text[at] = Byte();
        break;
    }
  }

  const std::vector<std::string>& inputs_;
  divvy::Random random_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> inputs =
      argc < 3 ? std::vector<std::string>() : ReadFolders(argc - 2, argv + 2);
  if (inputs.empty()) {
    std::fprintf(stderr, "usage: %s COUNT FOLDER.., with files in them\n", argv[0]);
    return 2;
  }
  std::signal(SIGABRT, [](int) { ShowCurrent(); });
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(ShowCurrent);
  for (const std::string& input : inputs) Try(input);
  Mutator mutator(inputs, 1);
  const long count = std::strtol(argv[1], nullptr, 10);
  for (long i = 0; i < count; ++i) Try(mutator.Next());
  std::printf("%zu files and %ld inputs made of them\n", inputs.size(), count);
  return 0;
}
