#include "net/tls.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <memory>

#include "net/grpc_server.h"
#include "net/http_client.h"
#include "net/http_server.h"
#include "net/test_peer.h"

namespace divvy::net {
namespace {

// Writes a key, and a certificate of that key for test.example and 127.0.0.1.
void MakeCertificate(const std::string& certificate_file, const std::string& key_file) {
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const std::unique_ptr<X509, decltype(&X509_free)> x509(X509_new(), X509_free);
  ASSERT_TRUE(key && x509);
  X509_set_version(x509.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(x509.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(x509.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(x509.get()), 3600);
  X509_set_pubkey(x509.get(), key.get());
  X509_NAME* const name = X509_get_subject_name(x509.get());
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("test.example"), -1, -1, 0);
  X509_set_issuer_name(x509.get(), name);
  X509V3_CTX context;
  X509V3_set_ctx(&context, x509.get(), x509.get(), nullptr, nullptr, 0);
  X509_EXTENSION* const names =
      X509V3_EXT_conf_nid(nullptr, &context, NID_subject_alt_name, "DNS:test.example,IP:127.0.0.1");
  X509_add_ext(x509.get(), names, -1);
  X509_EXTENSION_free(names);
  ASSERT_GT(X509_sign(x509.get(), key.get(), EVP_sha256()), 0);
  std::FILE* file = std::fopen(certificate_file.c_str(), "w");
  EXPECT_EQ(PEM_write_X509(file, x509.get()), 1);
  std::fclose(file);
  file = std::fopen(key_file.c_str(), "w");
  EXPECT_EQ(PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr), 1);
  std::fclose(file);
}

class TlsTest : public testing::Test {
 protected:
  void SetUp() override {
    MakeCertificate(folder_.File("cert"), folder_.File("key"));
    const auto address = Address::Parse("unix:" + folder_.File("s"));
    ASSERT_TRUE(address);
    address_ = *address;
    auto streams = TlsStreams::ForServer(folder_.File("cert"), folder_.File("key"), "http/1.1");
    ASSERT_TRUE(streams) << streams.error().message;
    server_streams_ = std::make_unique<TlsStreams>(std::move(*streams));
    server_ =
        std::make_unique<HttpServer>(loop_, HttpLimits(), *server_streams_,
                                     [](HttpRequest request, std::unique_ptr<HttpReply> reply) {
                                       HttpAnswer answer;
                                       answer.body = {Slice::Static("got "), request.body};
                                       reply->Send(std::move(answer));
                                     });
    const auto fd = Listen(address_, 8);
    ASSERT_TRUE(fd) << fd.error().message;
    server_->Serve(*fd);
  }

  // The body of the answer, or the error's message.
  std::string Ask(const TlsStreams& streams, const Slice& body, int times = 1) {
    HttpClient client(loop_, address_, "h", streams);
    std::string last;
    int answers = 0;
    for (int i = 0; i < times; ++i) {
      client.Send({.method = "POST", .target = "/", .headers = {}, .body = {body}},
                  [&](Result<HttpResponse> response) {
                    last = response ? std::string(response->body.view())
                                    : "error: " + response.error().message;
                    ++answers;
                  });
    }
    RunUntil(loop_, [&] { return answers == times; });
    return last;
  }

  TempFolder folder_;
  Loop loop_;
  Address address_;
  std::unique_ptr<TlsStreams> server_streams_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(TlsTest, SmallAndBigBodiesGoBothWays) {
  const auto streams = TlsStreams::ForClient(folder_.File("cert"), "test.example", "http/1.1");
  ASSERT_TRUE(streams) << streams.error().message;
  EXPECT_EQ(Ask(*streams, Slice::Static("hello"), 50), "got hello");
  std::string big(4 << 20, 'x');
  for (std::size_t i = 0; i < big.size(); i += 991) big[i] = static_cast<char>('a' + i % 26);
  EXPECT_TRUE(Ask(*streams, Slice(big), 2) == "got " + big);
  RunUntil(loop_, [this] { return server_->connections() == 0; });
}

TEST_F(TlsTest, AServerThatCannotProveItsNameIsNotTalkedTo) {
  MakeCertificate(folder_.File("other cert"), folder_.File("other key"));
  struct Case {
    std::string ca;
    std::string name;
    std::string protocol;
    bool talks;
  };
  const Case cases[] = {
      {folder_.File("cert"), "test.example", "http/1.1", true},
      {folder_.File("cert"), "127.0.0.1", "http/1.1", true},
      {folder_.File("cert"), "evil.example", "http/1.1", false},
      {folder_.File("cert"), "127.0.0.2", "http/1.1", false},
      {folder_.File("other cert"), "test.example", "http/1.1", false},
      {"", "test.example", "http/1.1", false},
      {folder_.File("cert"), "test.example", "h2", false},  // Another protocol.
  };
  for (const Case& one : cases) {
    const auto streams = TlsStreams::ForClient(one.ca, one.name, one.protocol);
    ASSERT_TRUE(streams) << streams.error().message;
    const std::string answer = Ask(*streams, Slice::Static("x"));
    EXPECT_EQ(answer == "got x", one.talks) << one.name << ' ' << one.protocol << ": " << answer;
  }
}

TEST_F(TlsTest, WhoSpeaksNoTlsIsClosed) {
  Peer peer(loop_, address_);
  ASSERT_TRUE(peer.Send("GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
  EXPECT_EQ(peer.ReceiveAll().find("HTTP/1.1 200"), std::string::npos);
  RunUntil(loop_, [this] { return server_->connections() == 0; });
}

// Hears of no call, because none comes so far.
class Deaf final : public GrpcHandler {
 public:
  void OnMessage(const std::shared_ptr<GrpcCall>&, Slice) override {}
  void OnHalfClose(const std::shared_ptr<GrpcCall>&) override {}
  void OnCancelled(const std::shared_ptr<GrpcCall>&) override {}
};

TEST_F(TlsTest, WhoDoesNotFinishTheHandshakeIsClosed) {
  // All other times are far longer than the test may take.
  HttpServer http(loop_, {.head_time = std::chrono::milliseconds(5)}, *server_streams_,
                  [](HttpRequest, std::unique_ptr<HttpReply>) {});
  Deaf deaf;
  GrpcServer grpc(
      loop_, {.stall_time = std::chrono::hours(1), .handshake_time = std::chrono::milliseconds(5)},
      *server_streams_, deaf);
  const auto http_at = Address::Parse("unix:" + folder_.File("h"));
  const auto grpc_at = Address::Parse("unix:" + folder_.File("g"));
  http.Serve(Listen(*http_at, 8).value());
  grpc.Serve(Listen(*grpc_at, 8).value());
  for (const Address& address : {*http_at, *grpc_at}) {
    Peer mute(loop_, address);
    Peer midway(loop_, address);
    ASSERT_TRUE(midway.Send("\x16\x03\x01"));  // How a ClientHello begins.
    EXPECT_EQ(mute.ReceiveAll() + midway.ReceiveAll(), "");
  }
  EXPECT_EQ(http.connections() + grpc.connections(), 0U);
}

TEST_F(TlsTest, FilesThatAreNoneAreNamed) {
  MakeCertificate(folder_.File("other cert"), folder_.File("other key"));
  const auto message = [](const Result<TlsStreams>& streams) {
    return streams ? std::string() : streams.error().message;
  };
  using testing::HasSubstr;
  EXPECT_THAT(message(TlsStreams::ForServer(folder_.File("none"), folder_.File("key"), "h2")),
              testing::AllOf(HasSubstr(folder_.File("none")), HasSubstr("No such file")));
  EXPECT_THAT(message(TlsStreams::ForServer(folder_.File("key"), folder_.File("key"), "h2")),
              HasSubstr(folder_.File("key") + ": no PEM certificate"));
  EXPECT_THAT(message(TlsStreams::ForServer(folder_.File("cert"), folder_.File("other key"), "h2")),
              testing::AllOf(HasSubstr(folder_.File("other key")), HasSubstr("mismatch")));
  EXPECT_THAT(message(TlsStreams::ForClient(folder_.File("key"), "x", "h2")),
              HasSubstr("no PEM certificates to trust"));
  EXPECT_THAT(message(TlsStreams::ForClient("", "", "h2")), HasSubstr("name"));
}

}  // namespace
}  // namespace divvy::net
