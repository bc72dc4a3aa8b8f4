#pragma once

#include <memory>
#include <string>

#include "net/grpc_server.h"
#include "net/loop.h"
#include "server/service.h"

namespace divvy::server {

// The Open Inference Protocol and Triton's extensions over gRPC, with grpc.health.v1. For the
// loop's thread alone.
class GrpcFront final : public net::GrpcHandler {
 public:
  // Both outlive it and every answer under way.
  GrpcFront(net::Loop& loop, Service& service) : loop_(loop), service_(service) {}

  void OnMessage(const std::shared_ptr<net::GrpcCall>& call, net::Slice message) override;
  bool MayWait(const std::string& method) const override;
  void OnHalfClose(const std::shared_ptr<net::GrpcCall>& call) override;
  void OnCancelled(const std::shared_ptr<net::GrpcCall>& call) override;

  // Streams end as soon as nothing of them is unanswered.
  void Drain();

 private:
  // Answers of a stream go out as they come; it is over when the client has said all and all is
  // answered.
  struct Stream {
    std::shared_ptr<net::GrpcCall> call;
    std::size_t pending = 0;
    bool half_closed = false;
  };

  void Unary(const std::shared_ptr<net::GrpcCall>& call, const net::Slice& message);
  [[nodiscard]] Result<std::string> Describe(std::string_view method,
                                             const net::Slice& message) const;
  [[nodiscard]] Result<std::string> DescribeModel(std::string_view method,
                                                  const net::Slice& message) const;
  void Infer(const std::shared_ptr<net::GrpcCall>& call, const net::Slice& message, bool streams);
  // Of a stream: sends the error as a message, or ends the call where no more may wait for the
  // client. Does nothing for a call that is over.
  void WriteError(const std::shared_ptr<net::GrpcCall>& call, const std::string& message);
  void Answered(const std::shared_ptr<net::GrpcCall>& call, bool streams);

  net::Loop& loop_;
  Service& service_;
  std::unordered_map<net::GrpcCall*, Stream> streams_;
};

// The status that fits the error's code.
[[nodiscard]] net::GrpcStatus StatusOf(const Error& error);

}  // namespace divvy::server
