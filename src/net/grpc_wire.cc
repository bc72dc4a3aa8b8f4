#include "net/grpc_wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include "net/inflate.h"
#include "net/target.h"

namespace divvy::net {
namespace {

constexpr Duration kLongest = std::chrono::hours(24 * 365 * 10);
constexpr std::size_t kMostMessageText = 4096;
constexpr std::int64_t kMostDigits = 99'999'999;

struct Unit {
  char letter;
  Duration length;
};

constexpr std::array<Unit, 6> kUnits{{{'n', std::chrono::nanoseconds(1)},
                                      {'u', std::chrono::microseconds(1)},
                                      {'m', std::chrono::milliseconds(1)},
                                      {'S', std::chrono::seconds(1)},
                                      {'M', std::chrono::minutes(1)},
                                      {'H', std::chrono::hours(1)}}};

MessageReader::Taken Refused(GrpcCode code, std::string message) {
  return {.message = std::nullopt, .status = {.code = code, .message = std::move(message)}};
}

MessageReader::Taken Inflated(GrpcEncoding encoding, std::string_view from,
                              std::size_t most_bytes) {
  const bool gzip = encoding == GrpcEncoding::kGzip;
  auto plain = Inflate(from, gzip ? DeflateFrame::kGzip : DeflateFrame::kZlib, most_bytes);
  if (plain) return {.message = Slice(std::move(*plain)), .status = {}};
  if (plain.error().code == ErrorCode::kResourceExhausted) {
    return Refused(GrpcCode::kResourceExhausted, "a message is " + plain.error().message);
  }
  return Refused(GrpcCode::kInternal, "a message is not compressed as grpc-encoding says");
}

}  // namespace

std::optional<Duration> ParseGrpcTimeout(std::string_view text) {
  if (text.size() < 2 || text.size() > 9) return std::nullopt;
  std::int64_t count = 0;
  for (const char c : text.substr(0, text.size() - 1)) {
    if (c < '0' || c > '9') return std::nullopt;
    count = count * 10 + (c - '0');
  }
  for (const Unit& unit : kUnits) {
    if (unit.letter != text.back()) continue;
    return count > kLongest / unit.length ? kLongest : unit.length * count;
  }
  return std::nullopt;
}

std::string FormatGrpcTimeout(Duration timeout) {
  for (const Unit& unit : kUnits) {
    const std::int64_t count =
        timeout / unit.length + (timeout % unit.length > Duration::zero() ? 1 : 0);
    if (count <= kMostDigits) return fmt::format("{}{}", count, unit.letter);
  }
  return fmt::format("{}H", kMostDigits);
}

std::string EncodeGrpcMessage(std::string_view text) {
  std::string encoded;
  for (const char c : text) {
    if (encoded.size() + 3 > kMostMessageText) break;
    if (c >= ' ' && c <= '~' && c != '%') {
      encoded += c;
    } else {
      fmt::format_to(std::back_inserter(encoded), "%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return encoded;
}

std::string DecodeGrpcMessage(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool room = text[i] == '%' && i + 2 < text.size();
    const int high = room ? HexDigit(text[i + 1]) : -1;
    const int low = room ? HexDigit(text[i + 2]) : -1;
    if (high < 0 || low < 0) {
      decoded += text[i];
      continue;
    }
    decoded += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return decoded;
}

void AppendStatus(const GrpcStatus& status, Headers& headers) {
  headers.emplace_back("grpc-status", fmt::format("{}", static_cast<int>(status.code)));
  if (!status.message.empty()) {
    headers.emplace_back("grpc-message", EncodeGrpcMessage(status.message));
  }
}

bool IsGrpcContentType(std::string_view value) {
  constexpr std::string_view kType = "application/grpc";
  if (!value.starts_with(kType)) return false;
  return value.size() == kType.size() || value[kType.size()] == '+' || value[kType.size()] == ';';
}

std::optional<GrpcEncoding> ParseGrpcEncoding(std::string_view name) {
  if (name == "identity") return GrpcEncoding::kIdentity;
  if (name == "gzip") return GrpcEncoding::kGzip;
  if (name == "deflate") return GrpcEncoding::kDeflate;
  return std::nullopt;
}

Slice MessagePrefix(std::size_t size) {
  std::string prefix(5, '\0');
  for (std::size_t i = 0; i < 4; ++i) prefix[4 - i] = static_cast<char>(size >> (8 * i) & 0xff);
  return Slice(std::move(prefix));
}

MessageReader::Taken MessageReader::Take(std::string_view& bytes) {
  if (prefix_size_ < kPrefix) {
    const std::size_t taken = std::min(kPrefix - prefix_size_, bytes.size());
    bytes.copy(prefix_.data() + prefix_size_, taken);
    prefix_size_ += taken;
    bytes.remove_prefix(taken);
    if (prefix_size_ < kPrefix) return {};
    GrpcStatus status = Begin();
    if (status.code != GrpcCode::kOk) return {.message = std::nullopt, .status = std::move(status)};
  }
  const std::size_t taken = std::min(size_ - filled_, bytes.size());
  bytes.copy(block_.get() + filled_, taken);
  filled_ += taken;
  bytes.remove_prefix(taken);
  return filled_ < size_ ? Taken{} : End();
}

GrpcStatus MessageReader::Begin() {
  size_ = 0;
  for (std::size_t i = 1; i < kPrefix; ++i) {
    size_ = size_ << 8 | static_cast<unsigned char>(prefix_[i]);
  }
  if (size_ > most_bytes_) {
    return {GrpcCode::kResourceExhausted,
            fmt::format("a message of {} bytes is larger than {}", size_, most_bytes_)};
  }
  const int flag = static_cast<unsigned char>(prefix_[0]);
  if (flag > 1) {
    return {GrpcCode::kInternal,
            fmt::format("a message's compressed flag is {}, not 0 or 1", flag)};
  }
  if (flag == 1 && encoding_ == GrpcEncoding::kIdentity) {
    return {GrpcCode::kInternal, "a message is compressed and grpc-encoding does not say how"};
  }
  // Not filled with zeros: pages that a sender announces and never fills are never touched.
  block_ = std::make_shared_for_overwrite<char[]>(size_);
  filled_ = 0;
  return {};
}

MessageReader::Taken MessageReader::End() {
  const std::shared_ptr<char[]> block = std::exchange(block_, nullptr);
  const std::string_view view(block.get(), size_);
  const bool compressed = prefix_[0] != 0;
  prefix_size_ = 0;
  filled_ = 0;
  if (compressed) return Inflated(encoding_, view, most_bytes_);
  return {.message = Slice(block, view), .status = {}};
}

}  // namespace divvy::net
