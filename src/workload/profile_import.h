#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "workload/profile_file.h"

namespace divvy::workload {

// Other people's tables that can be turned into profiles.
enum class ForeignTable {
  kParvaGpu,  // model,mig_gpc,batch,mps_procs,throughput_per_proc_rps,.. (A100-80GB)
  kMigPerf,   // gpu,kind,model,seq_len,batch,mig_profile,latency_ms,.. inference rows only
};

struct Imported {
  std::vector<ModelProfile> models;  // By name, then GPU; rows are the foreign file's.
  std::vector<std::string> notes;    // What was left out and why, with rows of the foreign file.
};

// Reads a foreign table. Latencies are those that its throughputs give where the
// table's own are rounded. Left out, with a note for each kind, are points that did
// not run, points measured again (the first stands), outliers (see Outliers), and
// points that repeat, digit for digit, the figure with one process fewer, which a
// benchmark that could not start the last process leaves behind. A model on several
// GPUs gives a profile for each; one with several sequence lengths on a GPU gives
// one for each, named "bert-base@seq128". Errors as ParseProfiles.
[[nodiscard]] Result<Imported> ImportProfiles(ForeignTable table, std::string_view text,
                                              std::string_view file_name);

}  // namespace divvy::workload
