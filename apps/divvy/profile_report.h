#pragma once

#include <string>
#include <string_view>

#include "workload/profile_file.h"

namespace divvy::app {

// What a profile file has and what is odd about it. Of findings of one kind, `all`
// or the first 20. Ends with a newline.
[[nodiscard]] std::string DescribeCheck(const workload::ProfileFile& file,
                                        std::string_view file_name, bool all);

// The same for programs, with every finding.
[[nodiscard]] std::string CheckToJson(const workload::ProfileFile& file,
                                      std::string_view file_name);

// The latencies of one model, a line for each curve and a column for each batch.
[[nodiscard]] std::string DescribeCurves(const workload::ModelProfile& model);

}  // namespace divvy::app
