#include "sim_job_cuda.h"

namespace divvy::tests {

std::optional<Cuda> LinkedCuda(bool) { return std::nullopt; }

}  // namespace divvy::tests
