#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/time.h"
#include "kserve/tensor.h"
#include "net/http_client.h"
#include "net/loop.h"
#include "server/backend.h"
#include "server/log.h"

namespace divvy::server {

// A worker to be started, or a server of somebody else's to be used in its place.
struct WorkerSpec {
  std::string name;  // Of its partition, for people.
  std::string model;
  std::vector<std::string> command;  // Program and arguments; --listen and --parent-fd are added.
  std::vector<std::pair<std::string, std::string>> environment = {};  // Besides our own.
  std::string socket;                                                 // Where it shall listen.
  std::string place = {};  // What it shares with other workers and dies with, such as a GPU's MPS
                           // daemon; empty: nothing.
  // Asked before each start; false: not yet, asked again soon. May be empty.
  std::function<bool()> can_start = {};
  std::optional<net::Address> address =
      {};           // Of the url: looked up before, since that may take long.
  std::string url;  // Not empty: nothing is started; "http://host:port".
  // Of a url: between looks at whether it is there and the same.
  Duration check = std::chrono::seconds(2);
};

// Keeps one worker going: starts it, waits until it is warm, starts it again when it ends, fails or
// is given up, waiting longer each time it does not last. Ends with its owner: a worker notices by
// itself when we die. A server of somebody else's is asked every few seconds whether it is still
// there and still the same; when it is not, it goes down, and up again as what it has become.
class WorkerProcess {
 public:
  struct Events {
    // It is warm and answers.
    std::function<void(std::unique_ptr<Backend>, kserve::ModelMetadata)> up;
    // It has ended, does not answer, or has become another. Not after GiveUp or ReachAgain.
    std::function<void()> down;
    // Whether it has something to do: then one that does not answer our questions in time need not
    // be down, and its batch has a limit of its own. May be empty.
    std::function<bool()> busy = {};
    // It is started, not for the first time.
    std::function<void()> restarted;
  };

  // `loop` and `log` outlive it.
  WorkerProcess(net::Loop& loop, WorkerSpec spec, Log& log, Events events);
  ~WorkerProcess();  // Kills.
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  void Start();
  // We could not connect to it, for want of something of our own: asks it again, a little later,
  // whether it is ready, and says `up` then.
  void ReachAgain(const std::string& why);
  // Kills what is no use any more and starts it again.
  void GiveUp(const std::string& why);
  // Asks it to end (SIGTERM) and does not start it again; killed after a while.
  void Stop();

  bool running() const { return pid_ > 0; }
  const WorkerSpec& spec() const { return spec_; }

 private:
  void Spawn();
  void Exited();
  void Kill();
  void AskWhetherReady();
  void AskForMetadata();
  void AskForConfig();
  void TooLate();
  void NotReady(const std::string& why);
  // No answer, be it for want of something of our own.
  void Unanswered(const Error& error);
  void TellOurs(const std::string& why);
  void IsUp();
  [[nodiscard]] std::string Target(std::string_view what) const;
  void Later(Duration wait, void (WorkerProcess::*next)());
  void Again(const std::string& why);
  [[nodiscard]] Result<net::Address> Where() const;
  [[nodiscard]] std::string Host() const;

  net::Loop& loop_;
  WorkerSpec spec_;
  Log& log_;
  Events events_;
  net::PlainStreams streams_;
  std::unique_ptr<net::HttpClient> control_;
  std::optional<kserve::ModelMetadata> metadata_;  // As last read.
  std::optional<kserve::ModelMetadata> known_;     // As told with `up`.
  int missed_ = 0;          // Answers in a row that a server which is up did not give.
  bool told_ = false;       // That a server of somebody else's is down, in the log.
  bool told_ours_ = false;  // The same, that we cannot connect.
  pid_t pid_ = -1;
  int pidfd_ = -1;
  int lifeline_ = -1;  // Closes with us, which the worker notices.
  bool up_ = false;
  bool stopping_ = false;
  bool has_timer_ = false;
  net::Loop::TimerId timer_{};
  TimePoint started_{};
  TimePoint up_since_{};
  Duration wait_{};
  int starts_ = 0;
};

}  // namespace divvy::server
