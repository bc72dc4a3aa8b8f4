#include "client/url.h"

#include <fmt/format.h>

#include <optional>

#include "base/number.h"
#include "base/text_safety.h"

namespace divvy::client {
namespace {

constexpr int kMostPort = 65'535;

struct Scheme {
  std::string_view prefix;
  bool grpc;
  bool tls;
};
constexpr Scheme kSchemes[] = {{"http://", false, false},
                               {"https://", false, true},
                               {"grpc://", true, false},
                               {"grpcs://", true, true}};

}  // namespace

Result<Url> ParseUrl(std::string_view text) {
  const auto wrong = [&](std::string_view why) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} {}; a server is named as in http://127.0.0.1:8000 or "
                            "grpc://127.0.0.1:8001 (https and grpcs for TLS)",
                            Quoted(text), why));
  };
  Url url;
  url.text = text;
  std::optional<std::string_view> after;
  for (const Scheme& scheme : kSchemes) {
    if (!text.starts_with(scheme.prefix)) continue;
    after = text.substr(scheme.prefix.size());
    url.grpc = scheme.grpc;
    url.tls = scheme.tls;
  }
  if (!after) return wrong("does not begin with http://, https://, grpc:// or grpcs://");
  std::string_view rest = *after;
  if (rest.starts_with("unix:")) {
    url.host = "localhost";
    url.address = rest;
    return url;
  }
  if (rest.ends_with('/')) rest.remove_suffix(1);
  if (rest.find_first_of("/?#@") != std::string_view::npos) {
    return wrong("has more than a host and a port");
  }
  // The colons of an IPv6 address stand within brackets.
  const std::size_t bracket = rest.rfind(']');
  const std::size_t colon = rest.find(':', bracket == std::string_view::npos ? 0 : bracket);
  url.host = rest.substr(0, colon);
  if (url.host.empty()) return wrong("names no host");
  std::string_view port = url.grpc ? "8001" : "8000";
  if (colon != std::string_view::npos) port = rest.substr(colon + 1);
  const std::optional<int> number = ParseInteger(port);
  if (!number || *number < 1 || *number > kMostPort) return wrong("has no port from 1 to 65535");
  url.address = fmt::format("{}:{}", url.host, port);
  return url;
}

}  // namespace divvy::client
