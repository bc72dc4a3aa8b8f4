#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/number.h"
#include "base/result.h"
#include "base/text_safety.h"

namespace divvy {

// Reads a CSV file with a header, row by row, and remembers the first thing that
// is wrong. From then on its answers are placeholders, so a reading function can
// run to its end and look at ok() once.
//
// Fields are separated by commas. A field in double quotes may hold commas, and
// quotes written twice; it ends on the line it begins on. Spaces around a field do
// not count, nor do empty lines, a byte order mark, or \r before \n. Refused are a
// row with more or fewer fields than the header, a column twice, files over 64 MiB
// and bytes that are not text.
//
// Every error is kInvalidArgument with "FILE:LINE: column: value, and what would be
// right". Not thread-safe.
class CsvReader {
 public:
  // Checks the text and reads the header. `text` and `file_name` must outlive the
  // reader.
  CsvReader(std::string_view text, std::string_view file_name);

  bool ok() const { return ok_; }

  // The first error. REQUIRES: !ok().
  const Error& error() const { return error_; }

  // Remembers an error, unless there is one. Without a line: that of the row.
  void Complain(int line, std::string_view what);
  void Complain(std::string_view what) { Complain(line_, what); }

  // Where the column stands, or nothing.
  [[nodiscard]] std::optional<std::size_t> Find(std::string_view column) const;

  // The same for a column that must be there; 0 after a complaint, which names
  // `what` ("a profile file").
  std::size_t Require(std::string_view column, std::string_view what);

  // Complains about the first column that is not `known`.
  void RefuseOthers(std::span<const std::string_view> known, std::string_view what);

  // Goes to the next row; false when there is none or something is wrong.
  bool NextRow();

  // Of the row, from 1.
  int line() const { return line_; }

  // A field of the row, good until the next one.
  std::string_view Field(std::size_t column) const { return fields_[column]; }

  // Typed fields of the row. REQUIRES: NextRow() was true.
  int Integer(std::size_t column, IntRange range);
  double Real(std::size_t column, RealRange range);
  // What IsName allows.
  std::string Name(std::size_t column, std::size_t longest = kMostNameBytes);

  // Nothing when there is no such column or the field is empty.
  std::optional<double> OptionalReal(std::optional<std::size_t> column, RealRange range);

 private:
  bool ReadLine();  // The next line that is not empty, into fields_.
  void ReadHeader();
  bool Split(std::string_view line);
  bool TakeQuoted(std::string_view& rest);
  void ComplainField(std::size_t column, std::string_view wanted);

  std::string_view rest_;
  std::string_view file_name_;
  int next_line_ = 1;
  int line_ = 0;
  std::vector<std::string> header_;
  std::vector<std::string_view> fields_;
  std::string unescaped_;  // Holds those of fields_ that stood in quotes.
  bool ok_ = true;
  Error error_{ErrorCode::kInvalidArgument, {}};
};

// `text` as a field that CsvReader reads back: in quotes when it has to be.
// REQUIRES: no line ends.
[[nodiscard]] std::string CsvField(std::string_view text);

}  // namespace divvy
