#pragma once

namespace divvy::net {

// For programs that pass messages on, at their start: memory of a large message serves the next
// one. Otherwise malloc gives blocks of more than 32 MiB back at once, and takes fresh ones page by
// page: an answer of 45 MB took 60 ms on its way in place of 15.
void KeepLargeBlocks();

}  // namespace divvy::net
