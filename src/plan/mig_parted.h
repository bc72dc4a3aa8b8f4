#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "plan/plan.h"

// NVIDIA's mig-parted configuration files; docs/formats/mig-parted.md says what
// maps to what.

namespace divvy::plan {

// Writes `plan` as a mig-parted file with one config. Comments at its top say
// what a mig-parted file cannot hold: places and workloads. '+' in the name
// becomes '.', as mig-parted's own files have it. kInvalidArgument when
//   a GPU is named by UUID (mig-parted knows indices only), or
//   the name is no Kubernetes label value, which is how the GPU operator uses it.
// REQUIRES: Validate(plan) finds nothing wrong.
[[nodiscard]] Result<std::string> ExportMigParted(const Plan& plan, std::string_view config_name);

// Which part of a mig-parted file to read, and for what node.
struct MigPartedSelection {
  std::string config;
  std::optional<std::string> kind = {};  // Needed unless the device filters leave one GPU kind.
  std::optional<int> gpus = {};          // GPUs in the node; needed for "devices: all".
};

// Reads one config as a plan; nothing in it has a start or runs anything. As
// strict as mig-parted about the form of the whole file. `file_name` is for the
// messages alone.
//
// Entries whose device filter excludes the kind are skipped, and GPUs that no
// entry names are not in the plan. kInvalidArgument, with "FILE:LINE: ..." where
// a line is to blame, also when two entries set the same GPU. kNotFound for an
// unknown config or kind. Whether the profiles fit together is Validate's
// question; the lines of the plan are those of the file.
[[nodiscard]] Result<Plan> ImportMigParted(std::string_view text, std::string_view file_name,
                                           const MigPartedSelection& selection);

}  // namespace divvy::plan
