// libFuzzer target: any bytes, in any pieces, are messages or an error, the same in all pieces; and
// views stay within their head. See CMakeLists.txt for how to run it.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/check.h"
#include "net/http.h"
#include "net/http_reader.h"

namespace divvy::net {
namespace {

void CheckWithin(std::string_view view, std::string_view head) {
  Check(view.data() >= head.data() && view.data() + view.size() <= head.data() + head.size(),
        "views of a head lie within it");
}

// What was read, as one text; nothing: it ended with an error.
template <typename Message, typename Parse>
std::optional<std::string> ReadAll(std::string_view bytes, std::size_t step, Parse parse) {
  HttpReader reader(300, 500);
  std::string log;
  while (!bytes.empty()) {
    const std::span<char> room = reader.Room();
    Check(!room.empty(), "there is always room");
    const std::size_t size = std::min({step, room.size(), bytes.size()});
    bytes.copy(room.data(), size);
    reader.Filled(size);
    bytes.remove_prefix(size);
    for (;;) {
      if (!reader.in_body()) {
        const auto head = reader.FindHead();
        if (!head) return std::nullopt;
        if (!*head) break;
        Message message;
        const auto framing = parse(Slice(nullptr, **head), message);
        if (!framing) return std::nullopt;
        const auto copy = reader.BeginBody(*framing);
        if (!copy) return std::nullopt;
        MoveHead(message, *copy);
        for (const HeaderView& header : message.headers) {
          CheckWithin(header.name, copy->view());
          CheckWithin(header.value, copy->view());
          log.append(header.name).append(header.value);
        }
      }
      const auto body = reader.TakeBody();
      if (!body) return std::nullopt;
      if (!*body) break;
      log.append("|").append((*body)->view()).append("|");
    }
  }
  return log;
}

template <typename Message, typename Parse>
void Try(std::string_view bytes, Parse parse) {
  const std::optional<std::string> whole = ReadAll<Message>(bytes, bytes.size() + 1, parse);
  for (const std::size_t step : {1, 7}) {
    Check(ReadAll<Message>(bytes, step, parse) == whole, "pieces do not matter");
  }
}

}  // namespace
}  // namespace divvy::net

// The name and linkage are libFuzzer's.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace divvy::net;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  Try<HttpRequest>(bytes, ParseRequestHead);
  Try<HttpResponse>(bytes, ParseResponseHead);
  return 0;
}
