#include "kserve/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>
#include <system_error>

#include "kserve/duplicate.h"
#include "kserve/json_plain.h"
#include "kserve/utf8.h"

namespace divvy::kserve {
namespace {

bool IsDigit(char c) { return '0' <= c && c <= '9'; }

bool IsHighSurrogate(std::uint32_t code) { return 0xD800 <= code && code <= 0xDBFF; }
bool IsLowSurrogate(std::uint32_t code) { return 0xDC00 <= code && code <= 0xDFFF; }

// REQUIRES: four hexadecimal digits at `at`.
std::uint32_t Hex4(std::string_view text, std::size_t at) {
  std::uint32_t code = 0;
  std::from_chars(text.data() + at, text.data() + at + 4, code, 16);
  return code;
}

// Whether a decimal number, not zero, is below 1: what from_chars calls out of range on either
// side.
bool IsBelowOne(std::string_view text) {
  const std::size_t e = text.find_first_of("eE");
  const std::string_view digits = text.substr(0, e);
  std::int64_t exponent = 0;
  if (e != std::string_view::npos) {
    std::string_view written = text.substr(e + 1);
    const bool negative = written.starts_with('-');
    if (written.starts_with('+') || negative) written.remove_prefix(1);
    const auto [end, error] =
        std::from_chars(written.data(), written.data() + written.size(), exponent);
    if (error != std::errc{}) return negative;
    if (negative) exponent = -exponent;
  }
  const std::size_t point = std::min(digits.find('.'), digits.size());
  const std::size_t first = digits.find_first_of("123456789");
  if (first == std::string_view::npos) return true;
  // Ones are 0, tens 1, tenths -1. Texts are far shorter than 2^62.
  const auto place = static_cast<std::int64_t>(point) - static_cast<std::int64_t>(first);
  const std::int64_t magnitude = first < point ? place - 1 : place;
  return exponent < -magnitude;
}

template <typename T>
std::optional<T> ToReal(std::string_view text) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc::result_out_of_range || std::isinf(number)) {
    if (!IsBelowOne(text)) return std::nullopt;
    return text.starts_with('-') ? -T{0} : T{0};
  }
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

template <typename T>
std::optional<T> ToWhole(const JsonNumber& number) {
  T value{};
  if (!number.whole) return std::nullopt;
  // JSON's -0 is a zero of every type.
  if (number.text == "-0") return T{0};
  const char* const last = number.text.data() + number.text.size();
  const auto [end, error] = std::from_chars(number.text.data(), last, value);
  if (error != std::errc{} || end != last) return std::nullopt;
  return value;
}

}  // namespace

void JsonString::AppendTo(std::string& text) const {
  if (!escaped) {
    text += raw;
    return;
  }
  for (std::size_t at = 0; at < raw.size();) {
    const std::size_t backslash = std::min(raw.find('\\', at), raw.size());
    text += raw.substr(at, backslash - at);
    if (backslash == raw.size()) return;
    constexpr std::string_view kLetters = "bfnrt";
    constexpr std::string_view kMeant = "\b\f\n\r\t";
    const char letter = raw[backslash + 1];
    at = backslash + 2;
    if (letter == 'u') {
      std::uint32_t code = Hex4(raw, at);
      at += 4;
      if (IsHighSurrogate(code)) {
        code = 0x10000 + ((code - 0xD800) << 10) + (Hex4(raw, at + 2) - 0xDC00);
        at += 6;
      }
      AppendUtf8(code, text);
    } else if (const auto index = kLetters.find(letter); index != std::string_view::npos) {
      text += kMeant[index];
    } else {
      text += letter;
    }
  }
}

std::string JsonString::Text() const {
  std::string text;
  AppendTo(text);
  return text;
}

std::optional<std::int64_t> JsonNumber::Int() const { return ToWhole<std::int64_t>(*this); }
std::optional<std::uint64_t> JsonNumber::Uint() const { return ToWhole<std::uint64_t>(*this); }
std::optional<double> JsonNumber::Double() const { return ToReal<double>(text); }
std::optional<float> JsonNumber::Float() const { return ToReal<float>(text); }

void JsonReader::Complain(std::string_view what) {
  if (!ok_) return;
  ok_ = false;
  problem_ = fmt::format("JSON, byte {}: {}", at_, what);
}

Error JsonReader::error() const { return {ErrorCode::kInvalidArgument, problem_}; }

char JsonReader::Next() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c != ' ' && c != '\n' && c != '\t' && c != '\r') return c;
    ++at_;
  }
  return '\0';
}

JsonKind JsonReader::Peek() {
  if (!ok_) return JsonKind::kNothing;
  const char c = Next();
  switch (c) {
    case '{':
      return JsonKind::kObject;
    case '[':
      return JsonKind::kArray;
    case '"':
      return JsonKind::kString;
    case 't':
    case 'f':
      return JsonKind::kBool;
    case 'n':
      return JsonKind::kNull;
    default:
      return c == '-' || IsDigit(c) ? JsonKind::kNumber : JsonKind::kNothing;
  }
}

bool JsonReader::Expect(char wanted, std::string_view name) {
  if (!ok_) return false;
  if (Next() == wanted && at_ < text_.size()) {
    ++at_;
    return true;
  }
  Missing(name);
  return false;
}

void JsonReader::Missing(std::string_view name) {
  Next();
  if (at_ == text_.size()) {
    Complain(fmt::format("the text ends where {} should be", name));
  } else if (' ' < text_[at_] && text_[at_] < 0x7F) {
    Complain(fmt::format("found '{}' where {} should be", text_[at_], name));
  } else {
    Complain(fmt::format("found byte 0x{:02x} where {} should be",
                         static_cast<unsigned char>(text_[at_]), name));
  }
}

void JsonReader::Begin(char bracket, std::string_view name) {
  if (!Expect(bracket, name)) return;
  if (++depth_ > kDeepest) Complain(fmt::format("nested deeper than {} levels", kDeepest));
  fresh_ = true;
}

void JsonReader::BeginObject() {
  Begin('{', "an object");
  if (!ok_) return;
  // Enough for most heads: two allocations instead of eight.
  if (first_keys_.empty()) first_keys_.reserve(4), keys_.reserve(16);
  first_keys_.push_back(keys_.size());
}

void JsonReader::BeginArray() { Begin('[', "an array"); }

bool JsonReader::NextMember(char closing) {
  if (!ok_) return false;
  if (Next() == closing) {
    ++at_;
    --depth_;
    fresh_ = false;
    return false;
  }
  if (!fresh_ && !Expect(',', closing == '}' ? "',' or '}'" : "',' or ']'")) return false;
  fresh_ = false;
  return true;
}

void JsonReader::CloseObject() {
  const std::size_t first = first_keys_.back();
  first_keys_.pop_back();
  const std::span<std::string_view> keys(keys_.data() + first, keys_.size() - first);
  if (const auto twice = FindDuplicate(keys)) {
    Complain(fmt::format("the key '{}' occurs twice in an object", twice->substr(0, 100)));
  }
  keys_.resize(first);
}

std::optional<std::string_view> JsonReader::Key() {
  if (!NextMember('}')) {
    if (ok_) CloseObject();
    return std::nullopt;
  }
  JsonString key;
  if (!Expect('"', "a key") || !ScanString(key) || !Expect(':', "':'")) return std::nullopt;
  // Escaped keys are kept as meant, or "a" and "\u0061" would pass for two.
  if (key.escaped) keys_.push_back(escaped_keys_.emplace_back(key.Text()));
  if (!key.escaped) keys_.push_back(key.raw);
  return keys_.back();
}

bool JsonReader::Item() { return NextMember(']'); }

bool JsonReader::ScanHex4(std::uint32_t& code) {
  if (text_.size() - at_ >= 4) {
    const char* const end = text_.data() + at_ + 4;
    const auto [stop, error] = std::from_chars(text_.data() + at_, end, code, 16);
    // from_chars takes a sign for no digit of an unsigned number, so four digits it is.
    if (error == std::errc{} && stop == end) {
      at_ += 4;
      return true;
    }
  }
  Complain("\\u takes four hexadecimal digits");
  return false;
}

// Behind a backslash.
bool JsonReader::ScanEscape() {
  const char letter = at_ < text_.size() ? text_[at_] : '\0';
  if (letter != 'u') {
    if (std::string_view("\"\\/bfnrt").find(letter) == std::string_view::npos || letter == '\0') {
      Complain("a backslash takes one of \" \\ / b f n r t u");
      return false;
    }
    ++at_;
    return true;
  }
  ++at_;
  std::uint32_t code = 0;
  if (!ScanHex4(code)) return false;
  bool whole = !IsLowSurrogate(code);
  if (IsHighSurrogate(code)) {
    whole = text_.substr(at_, 2) == "\\u";
    if (whole) {
      at_ += 2;
      if (!ScanHex4(code)) return false;
      whole = IsLowSurrogate(code);
    }
  }
  if (!whole) Complain("half of a surrogate pair");
  return whole;
}

// Behind the opening quote.
bool JsonReader::ScanString(JsonString& string) {
  const std::size_t begin = at_;
  while (true) {
    while (at_ < text_.size() && IsPlainInJson(text_[at_])) ++at_;
    if (at_ == text_.size()) {
      Complain("a string has no end");
      return false;
    }
    const char c = text_[at_];
    if (c == '"') {
      string.raw = text_.substr(begin, at_ - begin);
      ++at_;
      return true;
    }
    if (c == '\\') {
      string.escaped = true;
      ++at_;
      if (!ScanEscape()) return false;
      continue;
    }
    const std::size_t length =
        static_cast<unsigned char>(c) < 0x80 ? 0 : Utf8Length(text_.substr(at_));
    if (length == 0) {
      Complain(fmt::format("byte 0x{:02x} in a string is {}", static_cast<unsigned char>(c),
                           static_cast<unsigned char>(c) < 0x80
                               ? "a control character; those must be escaped"
                               : "not UTF-8 text"));
      return false;
    }
    at_ += length;
  }
}

JsonString JsonReader::String() {
  JsonString string;
  if (!Expect('"', "a string") || !ScanString(string)) return {};
  return string;
}

bool JsonReader::ScanDigits() {
  const std::size_t begin = at_;
  while (at_ < text_.size() && IsDigit(text_[at_])) ++at_;
  if (at_ == begin) Complain("a digit is missing in a number");
  return at_ != begin;
}

JsonNumber JsonReader::Number() {
  if (Peek() != JsonKind::kNumber) {
    Missing("a number");
    return {};
  }
  const std::size_t begin = at_;
  const auto at = [&](char a, char b) {
    return at_ < text_.size() && (text_[at_] == a || text_[at_] == b);
  };
  if (text_[at_] == '-') ++at_;
  if (at('0', '0')) {
    ++at_;
    if (at_ < text_.size() && IsDigit(text_[at_])) {
      Complain("a number begins with a zero too many");
      return {};
    }
  } else if (!ScanDigits()) {
    return {};
  }
  bool whole = true;
  if (at('.', '.')) {
    whole = false;
    ++at_;
    if (!ScanDigits()) return {};
  }
  if (at('e', 'E')) {
    whole = false;
    ++at_;
    if (at('+', '-')) ++at_;
    if (!ScanDigits()) return {};
  }
  return {text_.substr(begin, at_ - begin), whole};
}

bool JsonReader::ScanWord(std::string_view word) {
  if (text_.substr(at_, word.size()) != word) return false;
  at_ += word.size();
  return true;
}

bool JsonReader::Bool() {
  if (Peek() == JsonKind::kBool) {
    if (ScanWord("true")) return true;
    if (ScanWord("false")) return false;
  }
  Missing("true or false");
  return false;
}

// What is left of the innermost array.
void JsonReader::SkipItems() {
  while (Item()) Skip();
}

std::string_view JsonReader::Skip() {
  const JsonKind kind = Peek();
  const std::size_t begin = at_;
  switch (kind) {
    case JsonKind::kObject:
      BeginObject();
      while (Key()) Skip();
      break;
    case JsonKind::kArray:
      BeginArray();
      SkipItems();
      break;
    case JsonKind::kString:
      String();
      break;
    case JsonKind::kNumber:
      Number();
      break;
    case JsonKind::kBool:
      Bool();
      break;
    case JsonKind::kNull:
      if (!ScanWord("null")) Missing("null");
      break;
    case JsonKind::kNothing:
      Missing("a value");
  }
  return ok_ ? text_.substr(begin, at_ - begin) : std::string_view();
}

void JsonReader::End() {
  if (ok_ && (Next() != '\0' || at_ != text_.size())) Complain("something follows the value");
}

}  // namespace divvy::kserve
