#pragma once

#include <string>
#include <vector>

namespace divvy::app {

// The folder of the gate's boards: DIVVY_BOARD_DIR, or /dev/shm.
[[nodiscard]] std::string BoardDirectory();

// Paths of this user's boards there, in order of name. Empty if there are none.
[[nodiscard]] std::vector<std::string> FindBoards(const std::string& directory);

// Frees the slots of processes that are no more on each of this user's boards, and
// removes boards on which nobody is left. Boards that cannot be opened stay.
void ClearBoards(const std::string& directory);

}  // namespace divvy::app
