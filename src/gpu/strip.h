#pragma once

#include <span>
#include <string>
#include <vector>

#include "gpu/gpu_model.h"
#include "gpu/mig_layout.h"

namespace divvy::gpu {

// How text for a person is decorated. Chosen once, where the program knows
// whether it writes to a terminal.
enum class Ink { kPlain, kColour };

// An instance as drawn: what it is, and a word below it (may be empty).
struct StripCell {
  MigInstance instance;
  std::string label;
};

// Columns that one memory slice needs so that the names of `cells` fit, and those
// of the base profiles: so most strips of one kind of GPU are equally wide.
[[nodiscard]] int StripScale(const GpuModel& model, std::span<const StripCell> cells);

// One GPU's instances as a strip, a memory slice `scale` columns wide:
//
//   |1g.18gb |........|2g.35gb          |3g.71gb                            |
//
// Dots are free slices. With labels, a second line carries them, cut to fit.
// `cells` are in order of start and do not overlap. No newline at the end.
[[nodiscard]] std::string DrawStrip(const GpuModel& model, std::span<const StripCell> cells,
                                    int scale, Ink ink);

}  // namespace divvy::gpu
