#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "net/http.h"
#include "net/http_server.h"
#include "net/loop.h"
#include "server/inference.h"
#include "server/service.h"

namespace divvy::server {

// The Open Inference Protocol and Triton's extensions over HTTP. For the loop's thread alone.
class HttpFront {
 public:
  // Both outlive it and every answer under way.
  HttpFront(net::Loop& loop, Service& service) : loop_(loop), service_(service) {}

  // For net::HttpServer.
  void Handle(net::HttpRequest request, std::unique_ptr<net::HttpReply> reply);

 private:
  struct Path;
  [[nodiscard]] net::HttpAnswer Describe(const net::HttpRequest& request, const Path& path) const;
  [[nodiscard]] net::HttpAnswer DescribeModel(const Path& path) const;
  [[nodiscard]] net::HttpAnswer Index(const net::HttpRequest& request) const;
  void Infer(const net::HttpRequest& request, const Path& path,
             std::unique_ptr<net::HttpReply> reply);

  net::Loop& loop_;
  Service& service_;
};

// Prometheus' metrics, for a port of their own.
class MetricsFront {
 public:
  // Outlives it.
  explicit MetricsFront(const Service& service) : service_(service) {}
  // `gauges` is what is to be seen now.
  void Handle(const net::HttpRequest& request, std::unique_ptr<net::HttpReply> reply,
              const Metrics::Gauges& gauges) const;

 private:
  const Service& service_;
};

// {"error": ...} with the status that fits the error's code.
[[nodiscard]] net::HttpAnswer ErrorAnswer(const Error& error, bool shed_with_503 = false);

}  // namespace divvy::server
