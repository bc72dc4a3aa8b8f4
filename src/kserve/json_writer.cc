#include "kserve/json_writer.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "kserve/json_plain.h"
#include "kserve/utf8.h"

namespace divvy::kserve {
namespace {

template <typename T>
void AppendReal(T number, std::string& text) {
  if (!std::isfinite(number)) {
    text += "null";
    return;
  }
  const std::size_t before = text.size();
  fmt::format_to(std::back_inserter(text), "{}", number);
  if (text.find_first_of(".e", before) == std::string::npos) text += ".0";
}

}  // namespace

void JsonWriter::Separate() {
  if (text_.empty()) return;
  const char last = text_.back();
  if (last != '{' && last != '[' && last != ':') text_ += ',';
}

void JsonWriter::Open(char bracket) {
  Separate();
  text_ += bracket;
}

void JsonWriter::Quote(std::string_view text) {
  text_ += '"';
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    while (at < text.size() && IsPlainInJson(text[at])) ++at;
    text_ += text.substr(begin, at - begin);
    if (at == text.size()) break;
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte == '"' || byte == '\\') {
      text_ += '\\';
      text_ += text[at++];
    } else if (byte < 0x20) {
      fmt::format_to(std::back_inserter(text_), "\\u{:04x}", byte);
      ++at;
    } else if (const std::size_t length = Utf8Length(text.substr(at))) {
      text_ += text.substr(at, length);
      at += length;
    } else {
      text_ += "\xEF\xBF\xBD";
      ++at;
    }
  }
  text_ += '"';
}

void JsonWriter::Key(std::string_view key) {
  Separate();
  Quote(key);
  text_ += ':';
}

void JsonWriter::String(std::string_view text) {
  Separate();
  Quote(text);
}

void JsonWriter::Int(std::int64_t number) {
  Separate();
  text_ += fmt::format_int(number).c_str();
}

void JsonWriter::Uint(std::uint64_t number) {
  Separate();
  text_ += fmt::format_int(number).c_str();
}

void JsonWriter::Double(double number) {
  Separate();
  AppendReal(number, text_);
}

void JsonWriter::Float(float number) {
  Separate();
  AppendReal(number, text_);
}

void JsonWriter::Bool(bool value) {
  Separate();
  text_ += value ? "true" : "false";
}

}  // namespace divvy::kserve
