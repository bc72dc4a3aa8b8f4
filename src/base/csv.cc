#include "base/csv.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/spelling.h"
#include "base/text_safety.h"

namespace divvy {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxColumns = 256;
constexpr std::string_view kSpaces = " \t";

std::string_view Trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

}  // namespace

CsvReader::CsvReader(std::string_view text, std::string_view file_name) : file_name_(file_name) {
  if (text.size() > kMaxBytes) {
    ok_ = false;
    error_.message =
        fmt::format("{}: {} bytes; a file may have {}", file_name, text.size(), kMaxBytes);
    return;
  }
  if (const auto unsafe = FindUnsafeByte(text)) {
    Complain(unsafe->line, unsafe->what);
    return;
  }
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  rest_ = text;
  ReadHeader();
}

void CsvReader::Complain(int line, std::string_view what) {
  if (!ok_) return;
  ok_ = false;
  error_.message = fmt::format("{}:{}: {}", file_name_, line, what);
}

void CsvReader::ReadHeader() {
  if (!ReadLine()) {
    if (!ok_) return;
    ok_ = false;
    error_.message =
        fmt::format("{}: the file is empty; its first line names the columns", file_name_);
    return;
  }
  if (fields_.size() > kMaxColumns) {
    Complain(fmt::format("{} columns; a file may have {}", fields_.size(), kMaxColumns));
    return;
  }
  for (const std::string_view name : fields_) {
    if (name.empty()) Complain("the header has a column without a name");
    if (std::ranges::find(header_, name) != header_.end()) {
      Complain(fmt::format("the header has the column {} twice", Quoted(name)));
    }
    header_.emplace_back(name);
  }
}

bool CsvReader::ReadLine() {
  while (ok_ && !rest_.empty()) {
    const std::size_t end = std::min(rest_.find('\n'), rest_.size());
    std::string_view line = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    line_ = next_line_++;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (Trimmed(line).empty()) continue;
    return Split(line);
  }
  return false;
}

bool CsvReader::Split(std::string_view line) {
  fields_.clear();
  unescaped_.clear();
  // Fields point into it, so it must not move while the line is taken apart.
  unescaped_.reserve(line.size());
  for (;;) {
    line.remove_prefix(std::min(line.find_first_not_of(kSpaces), line.size()));
    if (line.starts_with('"')) {
      if (!TakeQuoted(line)) return false;
    } else {
      const std::size_t end = std::min(line.find(','), line.size());
      fields_.push_back(Trimmed(line.substr(0, end)));
      line.remove_prefix(end);
    }
    if (line.empty()) return true;
    line.remove_prefix(1);  // The comma.
  }
}

// Takes a field in quotes off the front of `rest`, up to its comma or the end.
bool CsvReader::TakeQuoted(std::string_view& rest) {
  const std::size_t begin = unescaped_.size();
  std::size_t at = 1;
  for (;; ++at) {
    if (at >= rest.size()) {
      Complain("a quote is opened and not closed on this line");
      return false;
    }
    if (rest[at] == '"') {
      if (at + 1 >= rest.size() || rest[at + 1] != '"') break;
      ++at;
    }
    unescaped_ += rest[at];
  }
  rest.remove_prefix(at + 1);
  rest.remove_prefix(std::min(rest.find_first_not_of(kSpaces), rest.size()));
  if (!rest.empty() && rest.front() != ',') {
    Complain("text follows a field in quotes; a comma must, and quotes inside are written twice");
    return false;
  }
  fields_.push_back(std::string_view(unescaped_).substr(begin));
  return true;
}

std::optional<std::size_t> CsvReader::Find(std::string_view column) const {
  const auto found = std::ranges::find(header_, column);
  if (found == header_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - header_.begin());
}

std::size_t CsvReader::Require(std::string_view column, std::string_view what) {
  const auto found = Find(column);
  if (!found) Complain(fmt::format("{} needs the column '{}'", what, column));
  return found.value_or(0);
}

void CsvReader::RefuseOthers(std::span<const std::string_view> known, std::string_view what) {
  for (const std::string& name : header_) {
    if (std::ranges::find(known, name) != known.end()) continue;
    std::string hint = DidYouMean(name, known);
    if (hint.empty()) hint = "; it may have " + OneOf(known);
    Complain(fmt::format("{} has no column {}{}", what, Quoted(name), hint));
  }
}

bool CsvReader::NextRow() {
  if (!ReadLine()) return false;
  if (fields_.size() != header_.size()) {
    Complain(fmt::format("{} fields, but the header has {}", fields_.size(), header_.size()));
  }
  return ok_;
}

void CsvReader::ComplainField(std::size_t column, std::string_view wanted) {
  Complain(fmt::format("{}: {} is not {}", header_[column], Quoted(fields_[column]), wanted));
}

int CsvReader::Integer(std::size_t column, IntRange range) {
  if (!ok_) return range.least;
  const auto number = ParseInteger(fields_[column]);
  if (number && range.least <= *number && *number <= range.most) return *number;
  ComplainField(column, Describe(range));
  return range.least;
}

double CsvReader::Real(std::size_t column, RealRange range) {
  if (!ok_) return range.least;
  const auto number = ParseReal(fields_[column]);
  if (number && range.least <= *number && *number <= range.most) return *number;
  ComplainField(column, Describe(range));
  return range.least;
}

std::string CsvReader::Name(std::size_t column, std::size_t longest) {
  if (!ok_) return {};
  if (!IsName(fields_[column], longest)) {
    ComplainField(column,
                  fmt::format("a name: 1 to {} bytes, no control characters, no spaces at the ends",
                              longest));
  }
  return std::string(fields_[column]);
}

std::optional<double> CsvReader::OptionalReal(std::optional<std::size_t> column, RealRange range) {
  if (!ok_ || !column || fields_[*column].empty()) return std::nullopt;
  return Real(*column, range);
}

std::string CsvField(std::string_view text) {
  if (text.find_first_of(",\"") == std::string_view::npos && Trimmed(text) == text) {
    return std::string(text);
  }
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

}  // namespace divvy
