#include "kserve/status.h"

#include <array>
#include <utility>

namespace divvy::kserve {
namespace {

// Where a status stands for two codes, the first is what it is read as.
constexpr std::array<std::pair<ErrorCode, int>, 8> kStatuses = {{
    {ErrorCode::kInvalidArgument, 400},
    {ErrorCode::kFailedPrecondition, 400},
    {ErrorCode::kPermissionDenied, 401},
    {ErrorCode::kNotFound, 404},
    {ErrorCode::kResourceExhausted, 429},
    {ErrorCode::kAborted, 500},
    {ErrorCode::kUnsupported, 501},
    {ErrorCode::kUnavailable, 503},
}};

}  // namespace

int HttpStatusOf(ErrorCode code) {
  for (const auto& [known, status] : kStatuses) {
    if (known == code) return status;
  }
  return 500;
}

ErrorCode ErrorCodeOf(int http_status) {
  for (const auto& [code, status] : kStatuses) {
    if (status == http_status) return code;
  }
  return ErrorCode::kAborted;
}

}  // namespace divvy::kserve
