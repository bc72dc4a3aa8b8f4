#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench_load.h"
#include "client/dialect.h"
#include "client/load_run.h"
#include "client/requests.h"
#include "client/summary.h"
#include "client/transport.h"
#include "client/url.h"
#include "net/loop.h"
#include "net/stream.h"

namespace divvy::app {

// How `divvy bench` talks to its server, as it stands on the command line.
struct BenchServerOptions {
  std::string url;
  std::string token_file = {};
  std::string tls_ca = {};
  int connections = 0;                   // 0: 64 for HTTP, 4 for gRPC.
  std::vector<std::string> shapes = {};  // "name:1,2,3".
};

// One measurement.
struct BenchRun {
  client::RunLog log;
  client::Summary summary;
};

struct BenchRunOptions {
  double factor = 1;
  Duration warm_up{};
  bool precise = false;
  Duration patience = std::chrono::seconds(30);
  std::optional<double> give_up_below = {};  // Once this share can no longer be in time.
};

// The server that is measured, and the requests to its models. SIGINT and SIGTERM end a run early
// while one exists: the first is waited out, the second is not.
class BenchServer {
 public:
  // Connects and asks about the load's models, which get their names if they have none: that of the
  // only model that the server has. kUnavailable: it does not answer; kInvalidArgument: it has no
  // such model, several to choose from, or requests that do not fit.
  [[nodiscard]] static Result<std::unique_ptr<BenchServer>> Open(const BenchServerOptions& options,
                                                                 BenchLoad& load);
  ~BenchServer();
  BenchServer(const BenchServer&) = delete;
  BenchServer& operator=(const BenchServer&) = delete;

  // Sends the load and waits for the answers. `what` is for the line of progress on a terminal.
  [[nodiscard]] BenchRun Run(const BenchLoad& load, const BenchRunOptions& options,
                             const std::string& what);

  // A signal has come: no more runs are wanted.
  bool interrupted() const { return interrupts_ > 0; }
  const client::Url& url() const { return url_; }
  int connections() const { return peer_.connections; }

 private:
  BenchServer() = default;

  [[nodiscard]] Result<void> Prepare(const BenchServerOptions& options);
  [[nodiscard]] Result<void> NameModels(client::Transport& transport, BenchLoad& load);
  [[nodiscard]] Result<void> MakeRequests(client::Transport& transport,
                                          const BenchServerOptions& options, const BenchLoad& load);
  [[nodiscard]] Error WhyNot(client::Transport& transport, const std::string& model,
                             const Error& error);
  [[nodiscard]] std::unique_ptr<client::Transport> Connect();
  void HearSignals();

  client::Url url_;
  client::Dialect dialect_;
  net::Loop loop_;
  std::unique_ptr<net::StreamMaker> streams_;
  client::Peer peer_;
  std::vector<client::Requests> requests_;  // By model.
  client::LoadRun* running_ = nullptr;
  int signals_ = -1;
  int interrupts_ = 0;
};

}  // namespace divvy::app
