// Stands in for nvidia-cuda-mps-control, by its rules as far as Divvy relies on them:
//
//   -f      a daemon in the foreground for CUDA_MPS_PIPE_DIRECTORY. Refuses where one runs
//           already. Makes its sockets and files there, and starts a server when asked to.
//   -d      the same in the background.
//   (none)  sends commands from standard input to the daemon, prints its answers. Fails
//           where there is none.
//
// The server outlives a daemon that is killed, which is the worse of what may happen.
// FAKE_MPS_FAULT says what is to go wrong: "refuse" (the daemon ends at once with a message),
// "mute" (it starts, and never answers), "deaf" (it does not end by quit or SIGTERM), "brief"
// (it ends after its first answer), "faint" (the second in the log ends before any). A daemon that
// is stopped (SIGSTOP) is a wedged one. FAKE_MPS_LOG names a file to which each start is added:
// "start PID DEVICES PRELOADED".

#include <fcntl.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <string>

namespace {

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string PipeFile(const std::string& name) {
  return Variable("CUDA_MPS_PIPE_DIRECTORY") + "/" + name;
}

sockaddr_un Address() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = PipeFile("control");
  if (path.size() >= sizeof address.sun_path) {
    std::puts("the path of the socket is too long");
    std::exit(1);
  }
  std::memcpy(address.sun_path, path.c_str(), path.size());
  return address;
}

int Fail(const char* message) {
  std::puts(message);
  return 1;
}

void Send(int fd, const std::string& text) {
  const ssize_t sent = send(fd, text.data(), text.size(), MSG_NOSIGNAL);
  static_cast<void>(sent);
}

std::string ReceiveLine(int fd) {
  std::string line;
  char byte = 0;
  while (read(fd, &byte, 1) == 1 && byte != '\n') line += byte;
  return line;
}

pid_t StartServer() {
  const pid_t server = fork();
  if (server != 0) return server;
  prctl(PR_SET_NAME, "nvidia-cuda-mps-server");
  close_range(STDERR_FILENO + 1, ~0U, 0);  // Whoever asked for it waits for an end.
  while (true) pause();
}

void RemoveFiles() {
  for (const char* name : {"control", "control_lock", "nvidia-cuda-mps-control.pid"}) {
    unlink(PipeFile(name).c_str());
  }
}

// One connection, one command. False when the daemon is to end.
bool Answer(int connection, const std::string& fault, pid_t& server) {
  const std::string command = ReceiveLine(connection);
  if (command == "get_server_list") {
    Send(connection, server == 0 ? "" : std::to_string(server) + "\n");
    return fault != "brief";
  }
  if (command.starts_with("start_server -uid ")) {
    if (server == 0) server = StartServer();
    return true;
  }
  if (command == "quit") return fault == "deaf";
  Send(connection, "!Unknown command\n");
  return true;
}

int RunDaemon(bool foreground) {
  const std::string fault = Variable("FAKE_MPS_FAULT");
  if (fault == "refuse") return Fail("the GPU is not to be had");
  const int lock = open(PipeFile("control_lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock < 0) return Fail("Cannot open the pipe directory");
  if (flock(lock, LOCK_EX | LOCK_NB) != 0) return Fail("A daemon is already running");
  if (!foreground && daemon(1, 0) != 0) return Fail("Cannot leave the foreground");
  if (const std::string log = Variable("FAKE_MPS_LOG"); !log.empty()) {
    std::ofstream(log, std::ios::app)
        << "start " << getpid() << " " << Variable("CUDA_VISIBLE_DEVICES") << " "
        << Variable("LD_PRELOAD") << std::endl;
    std::ifstream starts(log);
    if (fault == "faint" && std::count(std::istreambuf_iterator<char>(starts), {}, '\n') == 2) {
      return Fail("the GPU was lost");
    }
  }
  std::ofstream(PipeFile("nvidia-cuda-mps-control.pid")) << getpid();
  if (fault == "deaf") std::signal(SIGTERM, SIG_IGN);
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_un address = Address();
  if (bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(listener, 16) != 0) {
    return Fail("Cannot make the control socket");
  }
  pid_t server = 0;
  bool more = true;
  while (more) {
    const int connection = accept(listener, nullptr, nullptr);
    if (connection < 0) continue;
    if (fault == "mute") continue;  // It stays open, and nothing comes.
    more = Answer(connection, fault, server);
    close(connection);
  }
  if (server != 0) {
    kill(server, SIGKILL);
    waitpid(server, nullptr, 0);
  }
  RemoveFiles();
  return 0;
}

int Ask(const std::string& command) {
  const int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_un address = Address();
  if (connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return Fail("Cannot find the MPS control daemon");
  }
  Send(connection, command + "\n");
  std::string answer;
  char byte = 0;
  while (read(connection, &byte, 1) == 1) answer += byte;
  close(connection);
  const bool unknown = answer.starts_with('!');
  std::fputs(answer.c_str() + (unknown ? 1 : 0), stdout);
  return unknown ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (Variable("CUDA_MPS_PIPE_DIRECTORY").empty()) return Fail("no pipe directory");
  if (argc > 1) {
    const std::string option = argv[1];
    if (option != "-d" && option != "-f") return Fail("only -d and -f are known here");
    return RunDaemon(option == "-f");
  }
  for (std::string line; std::getline(std::cin, line);) {
    if (const int status = Ask(line); status != 0) return status;
  }
  return 0;
}
