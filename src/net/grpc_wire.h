#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/time.h"
#include "net/grpc.h"
#include "net/http.h"
#include "net/slice.h"

namespace divvy::net {

// What gRPC writes into HTTP/2: header values, and messages behind a prefix of five bytes.

// The value of grpc-timeout: one to eight digits and a unit (H, M, S, m, u, n). Nothing for what is
// none; what is longer than ten years counts as ten years.
[[nodiscard]] std::optional<Duration> ParseGrpcTimeout(std::string_view text);
// The finest unit that does in eight digits, rounded up. REQUIRES: timeout >= 0.
[[nodiscard]] std::string FormatGrpcTimeout(Duration timeout);

// The value of grpc-message: what is not printable ASCII, and '%', as %XX. Cut off after 4 KiB,
// since clients refuse long trailers, and with them the status.
[[nodiscard]] std::string EncodeGrpcMessage(std::string_view text);
// Wrong escapes stay as they are.
[[nodiscard]] std::string DecodeGrpcMessage(std::string_view text);

// grpc-status and, where there is one, grpc-message.
void AppendStatus(const GrpcStatus& status, Headers& headers);

// "application/grpc", alone or before '+' or ';'.
[[nodiscard]] bool IsGrpcContentType(std::string_view value);

enum class GrpcEncoding { kIdentity, kGzip, kDeflate };
[[nodiscard]] std::optional<GrpcEncoding> ParseGrpcEncoding(std::string_view name);

// The prefix of an uncompressed message. REQUIRES: size < 2^32.
[[nodiscard]] Slice MessagePrefix(std::size_t size);

// Cuts the bytes of a stream into messages. A message's bytes are copied once, into one block of
// the size that its prefix names.
class MessageReader {
 public:
  struct Taken {
    std::optional<Slice> message;  // Nothing: the bytes are used up.
    GrpcStatus status;             // Not OK: the stream cannot go on.
  };

  // No message, be it compressed or undone, may be larger than `most_bytes`.
  explicit MessageReader(std::size_t most_bytes) : most_bytes_(most_bytes) {}
  void set_encoding(GrpcEncoding encoding) { encoding_ = encoding; }

  // Takes bytes off the front of `bytes`, up to the end of the next message.
  [[nodiscard]] Taken Take(std::string_view& bytes);
  // A message has begun and is not whole yet.
  bool in_message() const { return prefix_size_ > 0; }
  // Bytes of it that have come.
  std::size_t held() const { return filled_; }

 private:
  static constexpr std::size_t kPrefix = 5;

  [[nodiscard]] GrpcStatus Begin();
  [[nodiscard]] Taken End();

  std::size_t most_bytes_;
  GrpcEncoding encoding_ = GrpcEncoding::kIdentity;
  std::array<char, kPrefix> prefix_{};
  std::size_t prefix_size_ = 0;
  std::shared_ptr<char[]> block_;  // Shared with the slice that it becomes.
  std::size_t size_ = 0;
  std::size_t filled_ = 0;
};

}  // namespace divvy::net
