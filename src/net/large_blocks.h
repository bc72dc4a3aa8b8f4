#pragma once

namespace divvy::net {

// For commands that pass messages on, before their threads begin: memory of a large message serves
// the next one. Otherwise malloc gives blocks of more than 32 MiB back at once, and takes fresh
// ones page by page (bench/results/server.md has what that costs).
void KeepLargeBlocks();

}  // namespace divvy::net
