#include "net/http.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include "base/random.h"
#include "net/address.h"
#include "net/http_reader.h"
#include "net/test_peer.h"

namespace divvy::net {
namespace {

struct RequestCase {
  std::string_view headers;  // Lines after the first, with their ends.
  std::string_view expected;
};

// "len=5", "chunked", "none", with " close" and " continue"; or the error's code and words.
std::string Describe(const Result<HttpFraming>& framing, bool keep_alive) {
  if (!framing) {
    return fmt::format("{}: {}", static_cast<int>(framing.error().code), framing.error().message);
  }
  std::string text = "none";
  if (framing->chunked) text = "chunked";
  if (framing->content_length) text = fmt::format("len={}", *framing->content_length);
  if (framing->until_close) text = "until close";
  if (!keep_alive) text += " close";
  if (framing->expects_continue) text += " continue";
  return text;
}

std::string ParseRequest(std::string text) {
  HttpRequest request;
  const auto framing = ParseRequestHead(Slice(std::move(text)), request);
  return Describe(framing, request.keep_alive);
}

TEST(HttpTest, HeadersSayHowTheMessageGoesOn) {
  const RequestCase cases[] = {
      {"", "none"},
      {"Content-Length: 5\r\n", "len=5"},
      {"content-LENGTH:5\r\n", "len=5"},
      {"Content-Length: \t 5 \t\r\n", "len=5"},
      {"Content-Length: 0005\r\n", "len=5"},
      {"Content-Length: 18446744073709551615\r\n", "len=18446744073709551615"},
      {"Transfer-Encoding: Chunked\r\n", "chunked"},
      {"Connection: close\r\n", "none close"},
      {"Connection: keep-alive, Close\r\n", "none close"},
      {"Connection: close\r\nConnection: keep-alive\r\n", "none close"},
      {"Expect: 100-continue\r\nContent-Length: 3\r\n", "len=3 continue"},
      {"Content-Lengths: x\r\n", "none"},
      {"X-Empty:\r\n", "none"},
      {"X-Latin: \xe9\r\n", "none"},
      // What makes two readers see two different messages.
      {"Content-Length: 5\r\nContent-Length: 5\r\n", "0: more than one Content-Length"},
      {"Content-Length: 5\r\nContent-Length: 6\r\n", "0: more than one Content-Length"},
      {"Content-Length: 5, 5\r\n", "0: Content-Length '5, 5' is not a number of bytes"},
      {"Content-Length: +5\r\n", "0: Content-Length '+5' is not a number of bytes"},
      {"Content-Length: -5\r\n", "0: Content-Length '-5' is not a number of bytes"},
      {"Content-Length: 0x5\r\n", "0: Content-Length '0x5' is not a number of bytes"},
      {"Content-Length: 5 5\r\n", "0: Content-Length '5 5' is not a number of bytes"},
      {"Content-Length:\r\n", "0: Content-Length '' is not a number of bytes"},
      {"Content-Length: 18446744073709551616\r\n",
       "0: Content-Length '18446744073709551616' is not a number of bytes"},
      {"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
       "0: Content-Length and Transfer-Encoding together"},
      {"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
       "0: Content-Length and Transfer-Encoding together"},
      {"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
       "0: more than one Transfer-Encoding"},
      {"Transfer-Encoding: gzip, chunked\r\n",
       "6: Transfer-Encoding 'gzip, chunked': only chunked is known here"},
      {"Transfer-Encoding: xchunked\r\n",
       "6: Transfer-Encoding 'xchunked': only chunked is known here"},
      {"Transfer-Encoding: \x0b"
       "chunked\r\n",
       "0: header Transfer-Encoding has a control character in it"},
      {"Content-Length : 5\r\n", "0: 'Content-Length : 5' is no header"},
      {" Content-Length: 5\r\n", "0: a header is folded over lines"},
      {"X: a\r\n b\r\n", "0: a header is folded over lines"},
      {": 5\r\n", "0: ': 5' is no header"},
      {"nothing\r\n", "0: 'nothing' is no header"},
      {"X: a\nContent-Length: 5\r\n", "0: a line of the head does not end with CR LF"},
      {"X: a\rContent-Length: 5\r\n", "0: header X has a control character in it"},
      {std::string_view("X: a\0b\r\n", 8), "0: header X has a control character in it"},
      {"Host: other\r\n", "0: a request has one Host header"},
  };
  for (const RequestCase& one : cases) {
    const std::string text = fmt::format("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", one.headers);
    EXPECT_EQ(ParseRequest(text), one.expected) << text;
  }
}

TEST(HttpTest, FirstLinesAndVersions) {
  const RequestCase cases[] = {
      {"GET / HTTP/1.1\r\n\r\n", "0: a request has one Host header"},
      {"GET / HTTP/1.0\r\n\r\n", "none close"},
      {"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "none"},
      {"GET / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n", "none close"},
      {"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "0: Transfer-Encoding in HTTP/1.0"},
      {"PRI * HTTP/2.0\r\n\r\n", "0: HTTP/1.0 and HTTP/1.1 are spoken here, not HTTP/2.0"},
      {"GET / HTTP/1.10\r\n\r\n", "0: HTTP/1.0 and HTTP/1.1 are spoken here, not HTTP/1.10"},
      {"GET / http/1.1\r\n\r\n", "0: 'http/1.1' is no HTTP version"},
      {"GET /\r\n\r\n", "0: 'GET /' is no request line: it is METHOD TARGET HTTP/1.1"},
      {"GET  HTTP/1.1\r\n\r\n",
       "0: '' is no target: other characters than visible ASCII are escaped"},
      {"GET /a b HTTP/1.1\r\n\r\n",
       "0: '/a b' is no target: other characters than visible ASCII are escaped"},
      {"G(T / HTTP/1.1\r\n\r\n", "0: 'G(T' is no method"},
      {" GET / HTTP/1.1\r\n\r\n", "0: '' is no method"},
      {"GET / HTTP/1.1\n\r\n", "0: a line of the head does not end with CR LF"},
      {"", "0: a line of the head does not end with CR LF"},
      {"GET / HTTP/1.0\r\n\r\nx", "0: bytes after the end of the head"},
  };
  for (const RequestCase& one : cases) {
    EXPECT_EQ(ParseRequest(std::string(one.headers)), one.expected) << one.headers;
  }
  std::string many = "GET / HTTP/1.1\r\nHost: h\r\n";
  for (int i = 0; i < 256; ++i) many += "A: b\r\n";
  EXPECT_EQ(ParseRequest(many + "\r\n"), "2: over 256 headers");
}

TEST(HttpTest, Answers) {
  const RequestCase cases[] = {
      {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "len=5"},
      {"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\n", "len=5"},
      {"HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\n\r\n", "chunked"},
      {"HTTP/1.1 200 OK\r\n\r\n", "until close close"},
      {"HTTP/1.1 204 No Content\r\n\r\n", "len=0"},
      {"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", "len=0"},
      {"HTTP/1.1 100 Continue\r\n\r\n", "len=0"},
      {"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", "len=5 close"},
      {"HTTP/1.1 20 OK\r\n\r\n", "0: 'HTTP/1.1 20 OK' is no status line"},
      {"HTTP/1.1 2000 OK\r\n\r\n", "0: 'HTTP/1.1 2000 OK' is no status line"},
      {"HTTP/1.1 +20 OK\r\n\r\n", "0: 'HTTP/1.1 +20 OK' is no status line"},
      {"HTTP/1.1\r\n\r\n", "0: 'HTTP/1.1' is no status line"},
      {"HTTP/2 200\r\n\r\n", "0: HTTP/1.0 and HTTP/1.1 are spoken here, not HTTP/2 2"},
      {"SSH-2.0-x\r\n\r\n", "0: 'SSH-2.0-' is no HTTP version"},
  };
  for (const RequestCase& one : cases) {
    HttpResponse response;
    const auto framing = ParseResponseHead(Slice(std::string(one.headers)), response);
    EXPECT_EQ(Describe(framing, response.keep_alive), one.expected) << one.headers;
  }
}

TEST(HttpTest, ViewsFollowTheirHead) {
  const std::string text = "PUT /t?x=1 HTTP/1.1\r\nHost: h\r\nX-Empty: \r\nA:  b c \r\n\r\n";
  HttpRequest request;
  ASSERT_TRUE(ParseRequestHead(Slice(text), request));
  MoveHead(request, Slice(text));  // The first copy is gone: a view into it is ASan's to find.
  EXPECT_EQ(request.method, "PUT");
  EXPECT_EQ(request.target, "/t?x=1");
  EXPECT_EQ(FindHeader(request.headers, "HOST"), "h");
  EXPECT_EQ(FindHeader(request.headers, "x-empty"), "");
  EXPECT_EQ(FindHeader(request.headers, "a"), "b c");
  EXPECT_EQ(FindHeader(request.headers, "b"), std::nullopt);
}

// Feeds `bytes` in pieces of `step`; what came out, message by message, or the error.
std::string ReadAll(std::string_view bytes, std::size_t step) {
  HttpReader reader(200, 20);
  std::string log;
  while (!bytes.empty()) {
    const std::span<char> room = reader.Room();
    const std::size_t size = std::min({step, room.size(), bytes.size()});
    bytes.copy(room.data(), size);
    reader.Filled(size);
    bytes.remove_prefix(size);
    for (;;) {
      if (!reader.in_body()) {
        const auto head = reader.FindHead();
        if (!head) return log + fmt::format("[{}]", head.error().message);
        if (!*head) break;
        HttpRequest request;
        const auto framing = ParseRequestHead(Slice(nullptr, **head), request);
        if (!framing) return log + fmt::format("[{}]", framing.error().message);
        const auto copy = reader.BeginBody(*framing);
        if (!copy) return log + fmt::format("[{}]", copy.error().message);
        MoveHead(request, *copy);
        log += request.target;
      }
      const auto body = reader.TakeBody();
      if (!body) return log + fmt::format("[{}]", body.error().message);
      if (!*body) break;
      log += fmt::format("({})", (*body)->view());
    }
  }
  return log + (reader.has_bytes() || reader.in_body() ? "..." : "");
}

TEST(HttpTest, ABodyKeepsNoLargeHead) {
  for (const std::size_t junk : {10, 5000}) {
    HttpReader reader(10'000, 20);
    const std::string text = "POST /b HTTP/1.1\r\nHost: h\r\nX: " + std::string(junk, 'j') +
                             "\r\nContent-Length: 3\r\n\r\nabcGET";
    text.copy(reader.Room().data(), text.size());
    reader.Filled(text.size());
    const auto found = reader.FindHead();
    ASSERT_TRUE(found && *found);
    HttpRequest request;
    const auto framing = ParseRequestHead(Slice(nullptr, **found), request);
    ASSERT_TRUE(framing);
    const auto head = reader.BeginBody(*framing);
    ASSERT_TRUE(head);
    EXPECT_EQ(head->view(), text.substr(0, text.size() - 6));
    EXPECT_EQ(reader.held(), text.size());
    const auto body = reader.TakeBody();
    ASSERT_TRUE(body && *body);
    EXPECT_EQ((*body)->view(), "abc");
    EXPECT_EQ((*body)->owner() == head->owner(), junk == 10);
    EXPECT_EQ(reader.held(), 3U);
  }
}

TEST(HttpTest, BytesAreCutIntoMessagesHoweverTheyCome) {
  const std::string get = "GET /a HTTP/1.1\r\nHost: h\r\n\r\n";
  const std::string post = "POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc";
  const std::string chunked = "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::pair<std::string, std::string> cases[] = {
      {get + get, "/a()/a()"},
      {post + "\r\n\r\n" + post + get, "/b(abc)/b(abc)/a()"},
      {chunked + "3\r\nabc\r\n0\r\n\r\n" + get, "/c(abc)/a()"},
      {chunked + "3;x=y\r\nabc\r\nA \r\n0123456789\r\n00\r\nTrailer: x\r\n\r\n" + post,
       "/c(abc0123456789)/b(abc)"},
      {chunked + "3\r\nabcd\r\n", "/c[a chunk is longer than its size]"},
      {chunked + "0x3\r\nabc\r\n", "/c[a chunk without a size]"},
      {chunked + "-3\r\nabc\r\n", "/c[a chunk without a size]"},
      {chunked + "3 3\r\nabc\r\n", "/c[a chunk without a size]"},
      {chunked + "3;\rx\r\nabc\r\n", "/c[a chunk without a size]"},
      {chunked + "\r\nabc\r\n", "/c[a chunk without a size]"},
      {chunked + "3\nabc\r\n", "/c[a chunk's line does not end with CR LF]"},
      {chunked + "fffffffffffffffff\r\n", "/c[a chunk without a size]"},
      {chunked + "ffffffffffffffff\r\n", "/c[chunks of over 20 bytes in all]"},
      {chunked + "10\r\n0123456789abcdef\r\n5\r\n", "/c[chunks of over 20 bytes in all]"},
      {chunked + "0\r\n" + std::string(30, 'x') + "\r\n" + std::string(200, 'x') + "\r\n",
       "/c[too many trailers]"},
      {chunked + std::string(9000, '0') + "\r\n", "/c[a chunk's line is too long]"},
      {chunked + "3\r\nab", "/c..."},
      {"POST /d HTTP/1.1\r\nHost: h\r\nContent-Length: 21\r\n\r\n",
       "[a body of 21 bytes; at most 20 are taken]"},
      {"GET / HTTP/1.1\r\nHost: h\r\nA: " + std::string(200, 'x'),
       "[the head of a message has at most 200 bytes]"},
      {"GET / HTTP/1.1\nHost: h\n\n", "[a line of the head does not end with CR LF]"},
      {"GET / HTTP/1.1\r\nHost: h\r\n\n", "[a line of the head does not end with CR LF]"},
      {"\x16\x03\x01", "[these bytes are no HTTP (is it TLS?)]"},
  };
  for (const auto& [bytes, expected] : cases) {
    for (const std::size_t step : {1, 2, 3, 7, 64, 100000}) {
      EXPECT_EQ(ReadAll(bytes, step), expected) << "in pieces of " << step << ": " << bytes;
    }
  }
}

// Whatever the bytes, and however they are cut, the outcome is one and the same.
TEST(HttpTest, RandomBytesAreReadAlikeInAnyPieces) {
  const std::string_view parts[] = {"GET /a HTTP/1.1\r\n",
                                    "POST /b HTTP/1.1\r\n",
                                    "Host: h\r\n",
                                    "Content-Length: 4\r\n",
                                    "\r\n",
                                    "Transfer-Encoding: chunked\r\n",
                                    "abcd",
                                    "4\r\n",
                                    "0\r\n",
                                    "\r",
                                    "\n",
                                    "\0",
                                    ": ",
                                    "z"};
  Random random(7);
  int messages = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = i % 2 == 0 ? "POST /b HTTP/1.1\r\nHost: h\r\n" : "";
    for (int part = 0; part < 8; ++part) bytes += parts[random.Below(std::size(parts))];
    const std::string whole = ReadAll(bytes, 100000);
    ASSERT_EQ(ReadAll(bytes, 1 + random.Below(5)), whole) << bytes;
    messages += whole.find('(') != std::string::npos ? 1 : 0;
  }
  EXPECT_GT(messages, 25) << "the parts no longer make messages";
}

TEST(AddressTest, ReadsWhatItWrites) {
  for (const std::string_view text :
       {"127.0.0.1:8000", "[::1]:65535", "0.0.0.0:0", "unix:/a/b.sock"}) {
    const auto address = Address::Parse(text);
    ASSERT_TRUE(address) << address.error().message;
    EXPECT_EQ(address->Describe(), text);
    EXPECT_EQ(address->is_loopback(), !text.starts_with("0.0.0.0"));
  }
  EXPECT_TRUE(Address::Parse("localhost:80").value().is_loopback());
}

TEST(AddressTest, ErrorsSayWhatIsWrong) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "it is HOST:PORT"},
      {"8000", "it is HOST:PORT"},
      {":8000", "it is HOST:PORT"},
      {"localhost", "it is HOST:PORT"},
      {"127.0.0.1:", "the port '' is not a number from 0 to 65535"},
      {"127.0.0.1:65536", "the port '65536' is not"},
      {"127.0.0.1:http", "the port 'http' is not"},
      {"127.0.0.1:-1", "the port '-1' is not"},
      {"::1:80", "an IPv6 host is written in brackets"},
      {"256.1.1.1.:80", "no address for '256.1.1.1.'"},
      {"unix:", "it is HOST:PORT"},
      {"unix:/" + std::string(107, 'x'), "at most 107 bytes, this one 108"},
  };
  for (const auto& [text, expected] : cases) {
    const auto address = Address::Parse(text);
    ASSERT_FALSE(address) << text;
    EXPECT_EQ(address.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(address.error().message.find(expected), std::string::npos) << address.error().message;
  }
}

TEST(AddressTest, AUnixSocketIsItsOwnersAndReplacesAStaleOneOnly) {
  const TempFolder folder;
  const Address address = Address::Parse("unix:" + folder.File("s")).value();
  const Result<int> first = Listen(address, 4);
  ASSERT_TRUE(first) << first.error().message;
  struct stat info{};
  ASSERT_EQ(stat(folder.File("s").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);

  const Result<int> second = Listen(address, 4);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(second.error().message.find(address.Describe()), std::string::npos);
  close(*first);  // Its server has died; the file is still there.
  const Result<int> third = Listen(address, 4);
  ASSERT_TRUE(third) << third.error().message;
  close(*third);

  // What is no socket is somebody's file.
  const int file = open(folder.File("file").c_str(), O_CREAT | O_WRONLY, 0600);
  close(file);
  EXPECT_FALSE(Listen(Address::Parse("unix:" + folder.File("file")).value(), 4));
  EXPECT_EQ(access(folder.File("file").c_str(), F_OK), 0);
}

TEST(AddressTest, PortZeroIsAnyFreeOneAndATakenOneIsAnError) {
  const Result<int> first = Listen(Address::Parse("127.0.0.1:0").value(), 4);
  ASSERT_TRUE(first);
  const Address real = LocalAddress(*first);
  EXPECT_NE(real.Describe(), "127.0.0.1:0");
  const Result<int> second = Listen(real, 4);
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message.find(real.Describe()), std::string::npos);
  close(*first);
}

}  // namespace
}  // namespace divvy::net
