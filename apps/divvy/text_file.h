#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace divvy::app {

// The whole of a file, or of standard input for "-". Reads 64 MiB at most:
// parsers set their own, smaller limits.
//   kNotFound          no such file;
//   kPermissionDenied  it may not be read;
//   kInvalidArgument   a directory, or too large;
//   kUnavailable       reading failed midway.
[[nodiscard]] Result<std::string> ReadText(const std::string& path);

// "standard input" for "-", else the path: how messages name a file.
[[nodiscard]] std::string_view NameOfInput(std::string_view path);

// Writes a file so that a reader, or a crash, finds the old content or the new,
// never a part: a temporary file beside it is renamed over it. A link is followed
// and the mode of an existing file is kept. On failure the old file is as it was.
//   kPermissionDenied, kNotFound (the folder), kInvalidArgument (there is
//   something that is no regular file), kUnavailable (disk full and the like).
[[nodiscard]] Result<void> SaveText(const std::string& path, std::string_view text);

// Whether a file can be written there, as far as one can tell without doing it: better said before
// a long run than after it. kInvalidArgument says what is in the way, and names the option.
[[nodiscard]] Result<void> CheckWritable(std::string_view option, const std::string& path);
// The same of a folder, which is made if it is not there.
[[nodiscard]] Result<void> MakeWritableFolder(std::string_view option, const std::string& path);

}  // namespace divvy::app
