#include "net/target.h"

#include <algorithm>
#include <cctype>

#include "net/http.h"

namespace divvy::net {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

namespace {

// "http://host:port/path" without its first part: what proxies are sent, and some clients send to
// everybody (RFC 9112, section 3.2.2).
std::string_view WithoutOrigin(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (target.size() <= scheme.size() || !EqualTokens(target.substr(0, scheme.size()), scheme)) {
      continue;
    }
    target.remove_prefix(scheme.size());
    const std::size_t end = std::min(target.find_first_of("/?#"), target.size());
    if (end == 0) return {};  // No host.
    return end == target.size() || target[end] != '/' ? std::string_view("/") : target.substr(end);
  }
  return target;
}

}  // namespace

std::optional<std::vector<std::string>> SplitPath(std::string_view target) {
  if (!target.starts_with('/')) target = WithoutOrigin(target);
  if (target.empty() || target.front() != '/') return {};
  target = target.substr(1, target.find_first_of("?#") - 1);
  std::vector<std::string> parts(1);
  for (std::size_t i = 0; i < target.size(); ++i) {
    const char c = target[i];
    if (c == '/') {
      parts.emplace_back();
    } else if (c == '%') {
      const bool whole = i + 2 < target.size();
      const int high = whole ? HexDigit(target[i + 1]) : -1;
      const int low = whole ? HexDigit(target[i + 2]) : -1;
      if (high < 0 || low < 0 || high + low == 0) return {};
      parts.back() += static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      parts.back() += c;
    }
  }
  if (parts.back().empty()) parts.pop_back();
  return parts;
}

std::string EscapedPart(std::string_view text) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || c == '-' || c == '_' || c == '.' || c == '~') {
      result += c;
    } else {
      result += '%';
      result += kHex[byte >> 4];
      result += kHex[byte & 15];
    }
  }
  return result;
}

}  // namespace divvy::net
