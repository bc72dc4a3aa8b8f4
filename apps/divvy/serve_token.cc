#include "serve_token.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "base/text_safety.h"
#include "text_file.h"

namespace divvy::app {

Result<std::string> ReadTokenFile(const std::string& file) {
  auto token = ReadText(file);
  if (!token) return Fail(token.error());
  while (!token->empty() && (token->back() == '\n' || token->back() == '\r')) token->pop_back();
  if (token->empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--token-file: {} is empty; put a token into it, such as `openssl rand "
                            "-hex 32` prints",
                            file));
  }
  const auto wrong = std::ranges::find_if(*token, [](unsigned char c) {
    return std::isalnum(c) == 0 &&
           std::string_view("-._~+/=").find(static_cast<char>(c)) == std::string_view::npos;
  });
  if (wrong == token->end()) return token;
  const bool blank = *wrong == ' ' || *wrong == '\t' || *wrong == '\n' || *wrong == '\r';
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("--token-file: {} has {} as its byte {}; a token is one word of letters, "
                          "digits and -._~+/=",
                          file, blank ? "a space or line end" : Quoted({&*wrong, 1}),
                          wrong - token->begin() + 1));
}

}  // namespace divvy::app
