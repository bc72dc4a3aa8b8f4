#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace divvy {

void CheckFailed(std::string_view message, std::source_location where) {
  std::fprintf(stderr, "%s:%u: invariant broken: %.*s\n", where.file_name(),
               static_cast<unsigned>(where.line()), static_cast<int>(message.size()),
               message.data());
  std::abort();
}

}  // namespace divvy
