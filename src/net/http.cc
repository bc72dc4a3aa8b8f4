#include "net/http.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>

#include "base/check.h"

namespace divvy::net {
namespace {

constexpr std::size_t kMostHeaders = 256;
constexpr std::size_t kUsualHeaders = 16;

// What a byte may be part of (RFC 9110, section 5.6.2 and 5.5).
enum ByteClass : std::uint8_t { kToken = 1, kValue = 2, kTarget = 4 };

constexpr std::array<std::uint8_t, 256> kClasses = [] {
  std::array<std::uint8_t, 256> classes{};
  for (std::size_t c = 0; c < classes.size(); ++c) {
    if ((c >= 0x20 && c != 0x7f) || c == '\t') classes[c] |= kValue;
    if (c > 0x20 && c < 0x7f) classes[c] |= kTarget;
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (letter || (c >= '0' && c <= '9')) classes[c] |= kToken;
  }
  for (const char c : std::string_view("!#$%&'*+-.^_`|~")) {
    classes[static_cast<unsigned char>(c)] |= kToken;
  }
  return classes;
}();

bool All(std::string_view text, ByteClass wanted) {
  return std::all_of(text.begin(), text.end(), [wanted](char c) {
    return (kClasses[static_cast<unsigned char>(c)] & wanted) != 0;
  });
}

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return text.substr(text.size());
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

// Other people's bytes, fit to be shown to them again: short and printable.
std::string Shown(std::string_view text) {
  constexpr std::size_t kMost = 60;
  std::string shown;
  for (const char c : text.substr(0, kMost)) shown += All({&c, 1}, kTarget) || c == ' ' ? c : '?';
  if (text.size() > kMost) shown += "...";
  return shown;
}

tl::unexpected<Error> Bad(std::string message) {
  return Fail(ErrorCode::kInvalidArgument, std::move(message));
}

// Takes the next line, without its end, off `rest`.
Result<std::string_view> TakeLine(std::string_view& rest) {
  const std::size_t end = rest.find('\n');
  if (end == std::string_view::npos || end == 0 || rest[end - 1] != '\r') {
    return Bad("a line of the head does not end with CR LF");
  }
  const std::string_view line = rest.substr(0, end - 1);
  rest.remove_prefix(end + 1);
  return line;
}

// "HTTP/1.0" and "HTTP/1.1" alone.
Result<int> ParseVersion(std::string_view text) {
  if (text == "HTTP/1.1") return 1;
  if (text == "HTTP/1.0") return 0;
  if (text.starts_with("HTTP/")) {
    return Bad(fmt::format("HTTP/1.0 and HTTP/1.1 are spoken here, not {}", Shown(text)));
  }
  return Bad(fmt::format("'{}' is no HTTP version", Shown(text)));
}

// Calls `each` for the elements of a list such as "keep-alive, Upgrade".
template <typename Each>
void ForEachElement(std::string_view list, Each each) {
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    if (const std::string_view element = Trim(list.substr(0, comma)); !element.empty()) {
      each(element);
    }
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
}

// What the headers say about framing and connection.
class FramingReader {
 public:
  explicit FramingReader(int minor_version) : keep_alive(minor_version >= 1) {
    framing.minor_version = minor_version;
  }

  Result<void> Take(const HeaderView& header) {
    // Few names matter; their lengths tell most others apart.
    switch (header.name.size()) {
      case 4:
        if (EqualTokens(header.name, "host")) ++hosts;
        break;
      case 6:
        if (EqualTokens(header.name, "expect") && EqualTokens(header.value, "100-continue")) {
          framing.expects_continue = framing.minor_version >= 1;
        }
        break;
      case 10:
        if (EqualTokens(header.name, "connection")) TakeConnection(header.value);
        break;
      case 14:
        if (EqualTokens(header.name, "content-length")) return TakeLength(header.value);
        break;
      case 17:
        if (EqualTokens(header.name, "transfer-encoding")) return TakeEncoding(header.value);
        break;
      default:
        break;
    }
    return {};
  }

  // What only all headers together show.
  Result<void> Finish() const {
    if (framing.chunked && framing.content_length) {
      return Bad("Content-Length and Transfer-Encoding together");
    }
    if (framing.chunked && framing.minor_version == 0) {
      return Bad("Transfer-Encoding in HTTP/1.0");
    }
    return {};
  }

  HttpFraming framing;
  bool keep_alive;
  int hosts = 0;

 private:
  void TakeConnection(std::string_view value) {
    ForEachElement(value, [this](std::string_view option) {
      if (EqualTokens(option, "close")) closes_ = true;
      if (EqualTokens(option, "keep-alive")) keep_alive = true;
    });
    if (closes_) keep_alive = false;
  }

  Result<void> TakeLength(std::string_view value) {
    if (framing.content_length) return Bad("more than one Content-Length");
    std::size_t length = 0;
    const char* const end = value.data() + value.size();
    const auto [stop, error] = std::from_chars(value.data(), end, length);
    if (error != std::errc() || stop != end) {
      return Bad(fmt::format("Content-Length '{}' is not a number of bytes", Shown(value)));
    }
    framing.content_length = length;
    return {};
  }

  Result<void> TakeEncoding(std::string_view value) {
    if (framing.chunked) return Bad("more than one Transfer-Encoding");
    if (!EqualTokens(value, "chunked")) {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("Transfer-Encoding '{}': only chunked is known here", Shown(value)));
    }
    framing.chunked = true;
    return {};
  }

  bool closes_ = false;
};

Result<HeaderView> ParseHeader(std::string_view line) {
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0 || !All(line.substr(0, colon), kToken)) {
    if (line.front() == ' ' || line.front() == '\t') return Bad("a header is folded over lines");
    return Bad(fmt::format("'{}' is no header", Shown(line)));
  }
  const HeaderView header{line.substr(0, colon), Trim(line.substr(colon + 1))};
  if (!All(header.value, kValue)) {
    return Bad(fmt::format("header {} has a control character in it", Shown(header.name)));
  }
  return header;
}

Result<FramingReader> ParseHeaders(std::string_view rest, int minor_version, HeaderViews& headers) {
  FramingReader reader(minor_version);
  headers.clear();
  headers.reserve(kUsualHeaders);
  for (;;) {
    const Result<std::string_view> line = TakeLine(rest);
    if (!line) return Fail(line.error());
    if (line->empty()) break;
    if (headers.size() == kMostHeaders) {
      return Fail(ErrorCode::kResourceExhausted, fmt::format("over {} headers", kMostHeaders));
    }
    const Result<HeaderView> header = ParseHeader(*line);
    if (!header) return Fail(header.error());
    if (const Result<void> taken = reader.Take(*header); !taken) return Fail(taken.error());
    headers.push_back(*header);
  }
  if (!rest.empty()) return Bad("bytes after the end of the head");
  if (const Result<void> finished = reader.Finish(); !finished) return Fail(finished.error());
  return reader;
}

std::string_view Moved(std::string_view view, std::string_view from, std::string_view to) {
  return to.substr(static_cast<std::size_t>(view.data() - from.data()), view.size());
}

void MoveHeaders(HeaderViews& headers, std::string_view from, std::string_view to) {
  for (HeaderView& header : headers) {
    header.name = Moved(header.name, from, to);
    header.value = Moved(header.value, from, to);
  }
}

}  // namespace

bool EqualTokens(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) {
           return x == y || Lower(x) == Lower(y);
         });
}

std::optional<std::string_view> FindHeader(const HeaderViews& headers, std::string_view name) {
  for (const HeaderView& header : headers) {
    if (EqualTokens(header.name, name)) return header.value;
  }
  return std::nullopt;
}

Result<HttpFraming> ParseRequestHead(Slice head, HttpRequest& request) {
  std::string_view rest = head.view();
  const Result<std::string_view> line = TakeLine(rest);
  if (!line) return Fail(line.error());
  const std::size_t first = line->find(' ');
  const std::size_t last = line->rfind(' ');
  if (first == std::string_view::npos || first == last) {
    return Bad(fmt::format("'{}' is no request line: it is METHOD TARGET HTTP/1.1", Shown(*line)));
  }
  request.method = line->substr(0, first);
  request.target = line->substr(first + 1, last - first - 1);
  const Result<int> version = ParseVersion(line->substr(last + 1));
  if (!version) return Fail(version.error());
  if (request.method.empty() || !All(request.method, kToken)) {
    return Bad(fmt::format("'{}' is no method", Shown(request.method)));
  }
  if (request.target.empty() || !All(request.target, kTarget)) {
    return Bad(fmt::format("'{}' is no target: other characters than visible ASCII are escaped",
                           Shown(request.target)));
  }
  const Result<FramingReader> reader = ParseHeaders(rest, *version, request.headers);
  if (!reader) return Fail(reader.error());
  if (reader->hosts > 1 || (reader->hosts == 0 && *version >= 1)) {
    return Bad("a request has one Host header");
  }
  request.keep_alive = reader->keep_alive;
  request.head = std::move(head);
  return reader->framing;
}

Result<HttpFraming> ParseResponseHead(Slice head, HttpResponse& response) {
  std::string_view rest = head.view();
  const Result<std::string_view> line = TakeLine(rest);
  if (!line) return Fail(line.error());
  // "HTTP/1.1 200 OK"; the reason may be empty, and some leave out the space before it too.
  constexpr std::size_t kCode = sizeof "HTTP/1.1 " - 1;
  constexpr std::size_t kDigits = 3;
  const Result<int> version = ParseVersion(line->substr(0, std::min(kCode - 1, line->size())));
  if (!version) return Fail(version.error());
  const bool long_enough = line->size() >= kCode + kDigits && (*line)[kCode - 1] == ' ';
  const std::string_view code = long_enough ? line->substr(kCode, kDigits) : std::string_view();
  const std::string_view reason = long_enough ? line->substr(kCode + kDigits) : std::string_view();
  int status = 0;
  const auto [stop, error] = std::from_chars(code.data(), code.data() + code.size(), status);
  if (error != std::errc() || stop != code.data() + code.size() || status < 100 ||
      (!reason.empty() && reason.front() != ' ') || !All(reason, kValue)) {
    return Bad(fmt::format("'{}' is no status line", Shown(*line)));
  }
  const Result<FramingReader> reader = ParseHeaders(rest, *version, response.headers);
  if (!reader) return Fail(reader.error());
  HttpFraming framing = reader->framing;
  if (status < 200 || status == 204 || status == 304) {
    framing.chunked = false;
    framing.content_length = 0;
  }
  framing.until_close = !framing.chunked && !framing.content_length;
  response.status = status;
  response.keep_alive = reader->keep_alive && !framing.until_close;
  response.head = std::move(head);
  return framing;
}

void MoveHead(HttpRequest& request, Slice head) {
  const std::string_view from = request.head.view();
  Check(from.size() == head.size(), "a copy of the head");
  request.method = Moved(request.method, from, head.view());
  request.target = Moved(request.target, from, head.view());
  MoveHeaders(request.headers, from, head.view());
  request.head = std::move(head);
}

void MoveHead(HttpResponse& response, Slice head) {
  const std::string_view from = response.head.view();
  Check(from.size() == head.size(), "a copy of the head");
  MoveHeaders(response.headers, from, head.view());
  response.head = std::move(head);
}

std::string_view ReasonPhrase(int status) {
  switch (status) {
    case 100:
      return "Continue";
    case 200:
      return "OK";
    case 202:
      return "Accepted";
    case 204:
      return "No Content";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 411:
      return "Length Required";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 499:
      return "Client Closed Request";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Unknown";
  }
}

}  // namespace divvy::net
