#include "run_boards.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>

#include "gate/board.h"

namespace divvy::app {

std::string BoardDirectory() {
  const char* const directory = std::getenv("DIVVY_BOARD_DIR");
  return directory == nullptr || *directory == '\0' ? "/dev/shm" : directory;
}

std::vector<std::string> FindBoards(const std::string& directory) {
  // As gate::BoardPath names them: 16 bytes of UUID in hex at the end.
  constexpr std::size_t kUuidDigits = 32;
  const std::string prefix = fmt::format("divvy-{}-", geteuid());
  std::vector<std::string> boards;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename();
    if (name.size() != prefix.size() + kUuidDigits || !name.starts_with(prefix)) continue;
    if (name.find_first_not_of("0123456789abcdef", prefix.size()) != std::string::npos) continue;
    boards.push_back(entry.path());
  }
  std::ranges::sort(boards);
  return boards;
}

void ClearBoards(const std::string& directory) {
  for (const std::string& path : FindBoards(directory)) {
    std::array<char, 512> error{};
    gate::Board* const board = gate::OpenBoard(path.c_str(), error.data(), error.size());
    if (board == nullptr) continue;  // Whoever joins it next says what is wrong with it.
    gate::RemoveIfEmpty(board, path.c_str());
    gate::CloseBoard(board);
  }
}

}  // namespace divvy::app
