#include "net/grpc_wire.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/test_grpc_messages.h"

namespace divvy::net {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(GrpcWire, TimeoutsOfAllUnitsAndOnlyThose) {
  const std::vector<std::pair<std::string, std::optional<Duration>>> cases{
      {"1H", hours(1)},
      {"2M", std::chrono::minutes(2)},
      {"3S", seconds(3)},
      {"4m", milliseconds(4)},
      {"5u", std::chrono::microseconds(5)},
      {"99999999n", Duration(99999999)},
      {"0n", Duration(0)},
      {"99999999H", hours(24 * 365 * 10)},
      {"", {}},
      {"5", {}},
      {"m", {}},
      {"123456789m", {}},
      {"-1m", {}},
      {"1 m", {}},
      {"1h", {}},
      {"1.5S", {}}};
  for (const auto& [text, expected] : cases) EXPECT_EQ(ParseGrpcTimeout(text), expected) << text;

  EXPECT_EQ(FormatGrpcTimeout(Duration(0)), "0n");
  EXPECT_EQ(FormatGrpcTimeout(Duration(99'999'999)), "99999999n");
  // Rounded up: a deadline that the server keeps must not be before the client's.
  EXPECT_EQ(FormatGrpcTimeout(Duration(100'000'001)), "100001u");
  EXPECT_EQ(ParseGrpcTimeout(FormatGrpcTimeout(hours(100'000))), hours(24 * 365 * 10));
}

TEST(GrpcWire, MessagesOfStatusesSurviveHeaders) {
  EXPECT_EQ(EncodeGrpcMessage("a b%\n\xc3\xa4"), "a b%25%0A%C3%A4");
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  EXPECT_EQ(DecodeGrpcMessage(EncodeGrpcMessage(all)), all);
  EXPECT_EQ(DecodeGrpcMessage("100% %4 %zz %"), "100% %4 %zz %");
  EXPECT_LE(EncodeGrpcMessage(std::string(10'000, '\n')).size(), 4096U);
}

TEST(GrpcWire, MessagesComeWholeHoweverTheyAreCut) {
  const std::string bytes = Framed("one") + Framed("") + Framed(Compressed("three", true), 1);
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    MessageReader reader(100);
    reader.set_encoding(GrpcEncoding::kGzip);
    std::vector<std::string> got;
    for (std::string_view part :
         {std::string_view(bytes).substr(0, cut), std::string_view(bytes).substr(cut)}) {
      while (true) {
        const MessageReader::Taken taken = reader.Take(part);
        ASSERT_EQ(taken.status.code, GrpcCode::kOk) << taken.status.message;
        if (!taken.message) break;
        got.emplace_back(taken.message->view());
      }
      EXPECT_TRUE(part.empty());
    }
    EXPECT_EQ(got, (std::vector<std::string>{"one", "", "three"})) << cut;
    EXPECT_FALSE(reader.in_message());
  }
}

TEST(GrpcWire, MessagesThatCannotBeAreRefused) {
  const std::string thousand = Compressed(std::string(1000, 'x'), false);
  const std::string small = Compressed("x", false);
  struct Case {
    std::string bytes;
    GrpcEncoding encoding;
    GrpcCode code;
  };
  const std::vector<Case> cases{
      {Framed(std::string(101, 'x')), GrpcEncoding::kIdentity, GrpcCode::kResourceExhausted},
      {Framed(std::string(100, 'x')), GrpcEncoding::kIdentity, GrpcCode::kOk},
      {Framed(thousand, 1), GrpcEncoding::kDeflate, GrpcCode::kResourceExhausted},
      {Framed(Compressed(std::string(101, 'x'), false), 1), GrpcEncoding::kDeflate,
       GrpcCode::kResourceExhausted},
      {Framed(Compressed(std::string(100, 'x'), false), 1), GrpcEncoding::kDeflate, GrpcCode::kOk},
      {Framed(small, 1), GrpcEncoding::kIdentity, GrpcCode::kInternal},
      {Framed(small, 1), GrpcEncoding::kGzip, GrpcCode::kInternal},
      {Framed(small.substr(0, small.size() - 1), 1), GrpcEncoding::kDeflate, GrpcCode::kInternal},
      {Framed(small + "x", 1), GrpcEncoding::kDeflate, GrpcCode::kInternal},
      {Framed("", 1), GrpcEncoding::kDeflate, GrpcCode::kInternal},
      {Framed("x", 2), GrpcEncoding::kIdentity, GrpcCode::kInternal}};
  for (const Case& c : cases) {
    MessageReader reader(100);
    reader.set_encoding(c.encoding);
    std::string_view bytes = c.bytes;
    const MessageReader::Taken taken = reader.Take(bytes);
    EXPECT_EQ(taken.status.code, c.code) << taken.status.message << " " << &c - cases.data();
    EXPECT_EQ(taken.message.has_value(), c.code == GrpcCode::kOk);
  }
}

}  // namespace
}  // namespace divvy::net
