#include "base/text_safety.h"

#include <fmt/format.h>

#include <cstdint>

namespace divvy {
namespace {

// One character of UTF-8. Length 0 marks a malformed sequence.
struct Utf8Character {
  std::uint32_t code_point;
  std::size_t length;
};

// Decodes the character that begins at `at`. Overlong forms, surrogates and code
// points beyond Unicode are malformed, as RFC 3629 asks.
Utf8Character DecodeAt(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const std::uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || at + length > text.size()) return {0, 0};
  std::uint32_t code_point = lead & (0x7Fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {0, 0};
    code_point = code_point << 6 | (byte(i) & 0x3Fu);
  }
  constexpr std::uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = 0xD800 <= code_point && code_point <= 0xDFFF;
  if (code_point < kSmallest[length] || surrogate || code_point > 0x10FFFF) return {0, 0};
  return {code_point, length};
}

bool IsControl(std::uint32_t code_point) {
  // 0x2028 and 0x2029 break lines in some readers of YAML and JSON.
  return code_point < 0x20 || (0x7F <= code_point && code_point < 0xA0) || code_point == 0x2028 ||
         code_point == 0x2029;
}

// What is wrong with the control character at `at` of a file, or an empty string.
std::string WhyUnsafe(std::string_view text, std::size_t at, bool indenting) {
  switch (text[at]) {
    case '\n':
      return {};
    case '\t':
      return indenting ? "a tab indents this line; use spaces" : "";
    case '\r':
      if (at + 1 < text.size() && text[at + 1] == '\n') return {};
      return "a carriage return without a line feed; lines end with \\n or \\r\\n";
    default:
      return "a control character; only text is allowed";
  }
}

}  // namespace

std::optional<UnsafeByte> FindUnsafeByte(std::string_view text) {
  int line = 1;
  bool indenting = true;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Character character = DecodeAt(text, at);
    if (character.length == 0) {
      return UnsafeByte{line, fmt::format("byte 0x{:02X} is not UTF-8 text",
                                          static_cast<unsigned char>(text[at]))};
    }
    if (IsControl(character.code_point)) {
      const std::string why = WhyUnsafe(text, at, indenting);
      if (!why.empty()) return UnsafeByte{line, why};
    }
    if (text[at] == '\n') ++line;
    indenting = text[at] == '\n' || (indenting && text[at] == ' ');
    at += character.length;
  }
  return std::nullopt;
}

bool IsName(std::string_view text, std::size_t longest) {
  if (text.empty() || text.size() > longest || text.front() == ' ' || text.back() == ' ') {
    return false;
  }
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Character character = DecodeAt(text, at);
    if (character.length == 0 || IsControl(character.code_point)) return false;
    at += character.length;
  }
  return true;
}

std::string Quoted(std::string_view text) {
  constexpr std::size_t kLongest = 40;
  std::string quoted = "'";
  std::size_t shown = 0;
  for (std::size_t at = 0; at < text.size(); ++shown) {
    if (shown == kLongest) {
      quoted += "...";
      break;
    }
    const Utf8Character character = DecodeAt(text, at);
    if (character.length == 0 || IsControl(character.code_point)) {
      quoted +=
          text[at] == '\n' ? "\\n" : fmt::format("\\x{:02x}", static_cast<unsigned char>(text[at]));
      ++at;
      continue;
    }
    quoted += text.substr(at, character.length);
    at += character.length;
  }
  return quoted + "'";
}

}  // namespace divvy
