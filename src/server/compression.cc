#include "server/compression.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cctype>

#include "base/check.h"
#include "base/text_safety.h"
#include "net/inflate.h"

namespace divvy::server {
namespace {

constexpr int kGzipBits = 15 + 16;
constexpr int kZlibBits = 15;

int BitsOf(Encoding encoding) { return encoding == Encoding::kGzip ? kGzipBits : kZlibBits; }

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

Bytef* Pointer(std::string_view data) {
  // zlib does not write to what it reads from.
  return reinterpret_cast<Bytef*>(const_cast<char*>(data.data()));
}

}  // namespace

Result<Encoding> ParseEncoding(std::string_view header) {
  const std::string name = Lower(Trimmed(header));
  if (name.empty() || name == "identity") return Encoding::kIdentity;
  if (name == "gzip" || name == "x-gzip") return Encoding::kGzip;
  if (name == "deflate") return Encoding::kDeflate;
  return Fail(ErrorCode::kUnsupported,
              fmt::format("unsupported Content-Encoding {}; gzip, deflate and identity are known",
                          Quoted(name)));
}

Encoding PreferredEncoding(std::string_view header) {
  const std::string text = Lower(header);
  bool gzip = false;
  bool deflate = false;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view item = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    const std::string_view name = Trimmed(item.substr(0, item.find(';')));
    const std::size_t quality = item.find("q=");
    const bool refused =
        quality != std::string_view::npos &&
        item.substr(quality + 2).find_first_of("123456789") == std::string_view::npos;
    if (name == "gzip") gzip = !refused;
    if (name == "deflate") deflate = !refused;
  }
  return gzip ? Encoding::kGzip : deflate ? Encoding::kDeflate : Encoding::kIdentity;
}

std::string_view Name(Encoding encoding) {
  return encoding == Encoding::kGzip      ? "gzip"
         : encoding == Encoding::kDeflate ? "deflate"
                                          : "identity";
}

Result<std::string> Decompress(Encoding encoding, std::string_view data, std::size_t most) {
  if (encoding == Encoding::kIdentity) return std::string(data);
  const bool gzip = encoding == Encoding::kGzip;
  auto plain = net::Inflate(data, gzip ? net::DeflateFrame::kGzip : net::DeflateFrame::kZlib, most);
  if (plain) return plain;
  if (plain.error().code == ErrorCode::kResourceExhausted) {
    return Fail(ErrorCode::kResourceExhausted, "the body is " + plain.error().message);
  }
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("the body is not {} data, as Content-Encoding says", Name(encoding)));
}

std::string Compress(Encoding encoding, std::string_view data) {
  z_stream stream{};
  Check(deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, BitsOf(encoding), 8, Z_DEFAULT_STRATEGY) ==
            Z_OK,
        "zlib");
  std::string out(deflateBound(&stream, data.size()), '\0');
  stream.next_in = Pointer(data);
  stream.avail_in = static_cast<uInt>(data.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  Check(deflate(&stream, Z_FINISH) == Z_STREAM_END, "zlib");
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  return out;
}

}  // namespace divvy::server
