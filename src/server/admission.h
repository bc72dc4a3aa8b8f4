#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "base/time.h"
#include "kserve/tensor.h"
#include "server/generation.h"
#include "server/inference.h"

namespace divvy::server {

// Makes an inference of a request's head: which model, how many items, how urgent, by when.
//
// The deadline is that of `deadline_ms` or `slo_ms` (milliseconds from arrival), else the model's
// SLO; `timeout` (microseconds, Triton's) and the transport's own deadline can only bring it
// forward. `priority` is Triton's: 1 is highest, 0 the model's own, beyond 8 too. kNotFound for an
// unknown model or version; kInvalidArgument for parameters that make no sense.
[[nodiscard]] Result<Inference> Admit(const Generation& generation,
                                      const kserve::InferRequest& request, TimePoint arrival,
                                      std::optional<TimePoint> transport_deadline);

// Unknown models and versions, as Triton words it.
[[nodiscard]] Result<const Generation::Model*> FindModel(const Generation& generation,
                                                         const std::string& name,
                                                         const std::string& version);

// Whether the request asks for `divvy_timing`.
[[nodiscard]] bool WantsTiming(const kserve::InferRequest& request);

}  // namespace divvy::server
