#include "gate/ops.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace divvy::gate {
namespace {

// Cuts the next field off `*rest`; null when there is none.
char* NextField(char** rest) { return strsep(rest, "\t"); }

bool ParseDimensions(const char* text, std::uint32_t (&dimensions)[3]) {
  char end = '\0';
  return text != nullptr &&
         sscanf(text, "%ux%ux%u%c", &dimensions[0], &dimensions[1], &dimensions[2], &end) == 3;
}

bool ParseNumber(const char* text, double least, double most, double& value) {
  if (text == nullptr || *text == '\0') return false;
  char* end = nullptr;
  value = strtod(text, &end);
  return *end == '\0' && value >= least && value <= most;
}

}  // namespace

std::uint64_t OpKey(const char* name, const LaunchShape& shape) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char* at = name; *at != '\0'; ++at)
    hash = (hash ^ static_cast<unsigned char>(*at)) * 0x100000001b3U;
  LaunchShape named = shape;
  named.handle = hash;
  return KeyOf(named);
}

bool ParseOp(char* line, KnownOp& op, char* error, unsigned error_size) {
  char* rest = line;
  const char* name = NextField(&rest);
  LaunchShape shape;
  const char* grid = NextField(&rest);
  const char* block = NextField(&rest);
  const char* shared = NextField(&rest);
  const char* duration = NextField(&rest);
  const char* fill = NextField(&rest);
  double shared_bytes = 0.0;
  double microseconds = 0.0;
  double part = 0.0;
  const char* wrong = nullptr;
  if (fill == nullptr)
    wrong = "a kernel has six fields, divided by tabs";
  else if (*name == '\0')
    wrong = "the kernel's name is missing";
  else if (!ParseDimensions(grid, shape.grid))
    wrong = "the grid must be as 8x1x1";
  else if (!ParseDimensions(block, shape.block))
    wrong = "the block must be as 256x1x1";
  else if (!ParseNumber(shared, 0, 1e9, shared_bytes))
    wrong = "shared_bytes must be a number";
  else if (!ParseNumber(duration, 0.001, 4e6, microseconds))
    wrong = "duration_us must be between 0.001 and 4e6";
  else if (!ParseNumber(fill, 0, 1e6, part))
    wrong = "fill must be a part of the GPU, as 0.25";
  else if (rest != nullptr)
    wrong = "there are more than six fields";
  if (wrong != nullptr) {
    snprintf(error, error_size, "%s", wrong);
    return false;
  }
  shape.shared_bytes = static_cast<std::uint32_t>(shared_bytes);
  op.key = OpKey(name, shape);
  op.ns = static_cast<std::uint32_t>(microseconds * 1000.0);
  op.fill = static_cast<std::uint16_t>(part >= 1.0 ? 1000 : part * 1000.0);
  return true;
}

bool KnownOps::Load(const char* path, char* error, unsigned error_size) {
  FILE* file = fopen(path, "re");
  if (file == nullptr) {
    snprintf(error, error_size, "cannot read the kernel profile %s: %s", path, strerror(errno));
    return false;
  }
  char* line = nullptr;
  std::size_t size = 0;
  unsigned number = 0;
  unsigned wrong = 0;
  bool good = true;
  error[0] = '\0';
  for (ssize_t length = 0; good && (length = getline(&line, &size, file)) >= 0;) {
    ++number;
    while (length > 0 && (line[length - 1] == '\n' || line[length - 1] == '\r'))
      line[--length] = '\0';
    if (number == 1) {
      good = strcmp(line, kOpsHeading) == 0;
      if (!good)
        snprintf(error, error_size,
                 "%s:1: not a kernel profile: its first line must be the heading kernel, grid, "
                 "block, shared_bytes, duration_us, fill, divided by tabs",
                 path);
      continue;
    }
    KnownOp op;
    char reason[96];
    if (length == 0) continue;
    if (ParseOp(line, op, reason, sizeof reason)) {
      Add(op);
    } else if (++wrong == 1) {
      snprintf(error, error_size, "%s:%u: %s; the line is left out", path, number, reason);
    }
  }
  if (number == 0) {
    good = false;
    snprintf(error, error_size, "%s: %s", path,
             ferror(file) != 0 ? "cannot be read" : "is empty; a kernel profile has a heading");
  } else if (wrong > 1) {
    const std::size_t length = strlen(error);
    snprintf(error + length, error_size - length, ", and so are %u others", wrong - 1);
  }
  free(line);
  fclose(file);
  return good;
}

void KnownOps::Add(const KnownOp& op) {
  if (2 * (count_ + 1) > capacity_) {
    const std::uint32_t capacity = capacity_ == 0 ? 256 : 2 * capacity_;
    auto* ops = static_cast<KnownOp*>(calloc(capacity, sizeof(KnownOp)));
    if (ops == nullptr) return;
    KnownOp* old = ops_;
    const std::uint32_t old_capacity = capacity_;
    ops_ = ops;
    capacity_ = capacity;
    count_ = 0;
    for (std::uint32_t i = 0; i < old_capacity; ++i) {
      if (old[i].key != 0) Add(old[i]);
    }
    free(old);
  }
  std::uint32_t at = static_cast<std::uint32_t>(op.key) % capacity_;
  while (ops_[at].key != 0 && ops_[at].key != op.key) at = (at + 1) % capacity_;
  if (ops_[at].key == 0) ++count_;
  ops_[at] = op;
}

const KnownOp* KnownOps::Find(std::uint64_t key) const {
  if (capacity_ == 0) return nullptr;
  for (std::uint32_t at = static_cast<std::uint32_t>(key) % capacity_; ops_[at].key != 0;
       at = (at + 1) % capacity_) {
    if (ops_[at].key == key) return &ops_[at];
  }
  return nullptr;
}

}  // namespace divvy::gate
