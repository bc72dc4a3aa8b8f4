#include "net/http_answer.h"

#include <fmt/format.h>

#include <cstddef>
#include <iterator>
#include <utility>

namespace divvy::net {
namespace {

// A header's value may come from a request. A line end in it would begin a header of its own.
void AppendValue(std::string& to, std::string_view value) {
  constexpr std::string_view kEnds("\r\n\0", 3);
  if (value.find_first_of(kEnds) == std::string_view::npos) {
    to += value;
    return;
  }
  for (const char c : value) to += kEnds.find(c) == std::string_view::npos ? c : ' ';
}

}  // namespace

bool MayHaveBody(int status) { return status >= 200 && status != 204 && status != 304; }

std::string AnswerHead(const HttpAnswer& answer, bool closes, int minor_version) {
  std::size_t length = 0;
  for (const Slice& slice : answer.body) length += slice.size();
  std::string head;
  head.reserve(256);
  fmt::format_to(std::back_inserter(head), "HTTP/1.1 {} {}\r\n", answer.status,
                 ReasonPhrase(answer.status));
  for (const auto& [name, value] : answer.headers) {
    head += name;
    head += ": ";
    AppendValue(head, value);
    head += "\r\n";
  }
  if (MayHaveBody(answer.status)) {
    fmt::format_to(std::back_inserter(head), "Content-Length: {}\r\n", length);
  }
  if (closes) {
    head += "Connection: close\r\n";
  } else if (minor_version == 0) {
    head += "Connection: keep-alive\r\n";
  }
  head += "\r\n";
  return head;
}

HttpAnswer ErrorAnswer(int status, std::string_view message) {
  std::string body = R"({"error":")";
  for (const char c : message) {
    if (c == '"' || c == '\\') body += '\\';
    body += c;
  }
  body += "\"}";
  HttpAnswer answer{.status = status, .headers = {}, .body = {}};
  answer.headers.emplace_back("Content-Type", "application/json");
  if (status == 429 || status == 503) answer.headers.emplace_back("Retry-After", "1");
  answer.body.emplace_back(std::move(body));
  return answer;
}

}  // namespace divvy::net
