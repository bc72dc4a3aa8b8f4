#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace divvy {

// Why an operation failed, in terms a caller can act on. Callers that speak a
// protocol or set an exit status map these in one place of their own.
enum class ErrorCode {
  kInvalidArgument,     // The request can never succeed as written.
  kNotFound,            // It names something that does not exist.
  kResourceExhausted,   // It could succeed later, or elsewhere.
  kFailedPrecondition,  // The system is in a state that must be changed first.
  kPermissionDenied,    // This user may not do it.
  kUnavailable,         // A device or peer did not answer.
  kUnsupported,         // This hardware or driver cannot do it.
  kAborted,             // It failed midway; the message says what was undone.
};

struct Error {
  ErrorCode code;
  std::string message;  // For a person: what was attempted, with the values.

  friend bool operator==(const Error&, const Error&) = default;
};

// tl::expected until the toolchain is C++23; only this header names it.
template <typename T>
using Result = tl::expected<T, Error>;

[[nodiscard]] inline tl::unexpected<Error> Fail(ErrorCode code, std::string message) {
  return tl::unexpected<Error>(Error{code, std::move(message)});
}

// Hands an error of one Result on as the error of another.
[[nodiscard]] inline tl::unexpected<Error> Fail(Error error) {
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace divvy
