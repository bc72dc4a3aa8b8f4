#include "net/inflate.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>

#include "base/check.h"

namespace divvy::net {
namespace {

// zlib counts in 32 bits.
constexpr std::size_t kAtOnce = std::size_t{1} << 30;

// The largest window; 16 more: in gzip's frame rather than zlib's.
int WindowBits(DeflateFrame frame) { return frame == DeflateFrame::kGzip ? 15 + 16 : 15; }

}  // namespace

Result<std::string> Inflate(std::string_view packed, DeflateFrame frame, std::size_t most_bytes) {
  z_stream stream{};
  Check(inflateInit2(&stream, WindowBits(frame)) == Z_OK, "memory for zlib");
  const std::size_t first = 4 * packed.size() + 1024;
  std::string plain;
  int status = Z_OK;
  // One byte beyond the limit tells what is too large from what just fits.
  while (status == Z_OK && plain.size() <= most_bytes) {
    if (stream.avail_in == 0) {
      // zlib takes a pointer to non-const and writes nothing there.
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
      stream.avail_in = static_cast<uInt>(std::min(packed.size(), kAtOnce));
      packed.remove_prefix(stream.avail_in);
    }
    const std::size_t before = plain.size();
    const std::size_t more = std::min(std::max(before, first), kAtOnce);
    plain.resize(std::min(most_bytes + 1, before + more));
    stream.next_out = reinterpret_cast<Bytef*>(plain.data() + before);
    stream.avail_out = static_cast<uInt>(plain.size() - before);
    status = inflate(&stream, Z_NO_FLUSH);  // Z_BUF_ERROR: it ends too early.
    plain.resize(plain.size() - stream.avail_out);
  }
  const bool whole = status == Z_STREAM_END && stream.avail_in == 0 && packed.empty();
  inflateEnd(&stream);
  if (plain.size() > most_bytes) {
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("larger than {} bytes when decompressed", most_bytes));
  }
  if (!whole) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("no {} data", frame == DeflateFrame::kGzip ? "gzip" : "deflate"));
  }
  return plain;
}

}  // namespace divvy::net
