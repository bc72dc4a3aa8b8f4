#include "gpu/strip.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "base/check.h"

namespace divvy::gpu {
namespace {

// A border on the left and a blank on the right of a name.
constexpr int kAroundName = 2;

constexpr std::string_view kReset = "\x1b[0m";
constexpr std::string_view kDim = "\x1b[2m";

// Black on a background that grows warmer with the compute slices, from the
// sixteen colours that every terminal has.
std::string_view ColourOf(const MigProfile& profile) {
  switch (profile.compute_slices) {
    case 1:
      return "\x1b[30;46m";  // Cyan.
    case 2:
      return "\x1b[30;42m";  // Green.
    case 3:
      return "\x1b[30;43m";  // Yellow.
    case 4:
      return "\x1b[30;45m";  // Magenta.
    default:
      return "\x1b[30;41m";  // Red.
  }
}

bool ContinuesCharacter(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// The first `columns` characters of `text`, filled up with blanks. Counts UTF-8
// characters as one column each. Labels come from files, so control characters,
// which could move the cursor or recolour the terminal, become '?'.
std::string Fit(std::string_view text, int columns) {
  std::string fitted;
  int used = 0;
  for (const char c : text) {
    if (!ContinuesCharacter(c) && used++ == columns) return fitted;
    const auto byte = static_cast<unsigned char>(c);
    fitted += byte < 0x20 || byte == 0x7F ? '?' : c;
  }
  fitted.append(static_cast<std::size_t>(std::max(0, columns - used)), ' ');
  return fitted;
}

std::string Paint(const std::string& text, std::string_view colour, Ink ink) {
  if (ink == Ink::kPlain) return text;
  return std::string(colour) + text + std::string(kReset);
}

}  // namespace

int StripScale(const GpuModel& model, std::span<const StripCell> cells) {
  int scale = 2;
  const auto fit = [&](const MigProfile& profile) {
    const int columns = static_cast<int>(profile.name.size()) + kAroundName;
    scale = std::max(scale, (columns + profile.memory_slices - 1) / profile.memory_slices);
  };
  for (const ProfileIndex base : model.Select(ProfileSet::kBase)) fit(model.profile(base));
  for (const StripCell& cell : cells) fit(model.profile(cell.instance.profile));
  return scale;
}

std::string DrawStrip(const GpuModel& model, std::span<const StripCell> cells, int scale, Ink ink) {
  Check(scale >= 2, "a slice has room for its border and one column");
  std::string strip;
  std::string labels;
  int slice = 0;
  const auto draw_free_until = [&](int end) {
    for (; slice < end; ++slice) {
      strip += '|' + Paint(std::string(static_cast<std::size_t>(scale - 1), '.'), kDim, ink);
      labels += Fit("", scale);
    }
  };
  for (const StripCell& cell : cells) {
    const MigProfile& profile = model.profile(cell.instance.profile);
    Check(cell.instance.start >= slice, "cells are in order and do not overlap");
    draw_free_until(cell.instance.start);
    const int columns = scale * profile.memory_slices - 1;
    strip += '|' + Paint(Fit(profile.name, columns), ColourOf(profile), ink);
    labels += ' ' + Fit(cell.label, columns);
    slice += profile.memory_slices;
  }
  draw_free_until(model.memory_slices);
  strip += '|';

  const std::size_t last = labels.find_last_not_of(' ');
  if (last == std::string::npos) return strip;
  return strip + '\n' + labels.substr(0, last + 1);
}

}  // namespace divvy::gpu
