#include "program.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <utility>

#include "base/check.h"

namespace divvy::test {
namespace {

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Reads both pipes until both are closed, so that neither can fill up.
void Drain(std::array<int, 2> fds, std::array<std::string*, 2> texts) {
  int open_pipes = 2;
  while (open_pipes > 0) {
    std::array<pollfd, 2> polls = {{{fds[0], POLLIN, 0}, {fds[1], POLLIN, 0}}};
    Check(poll(polls.data(), polls.size(), -1) > 0, "poll works");
    for (std::size_t i = 0; i < polls.size(); ++i) {
      if (polls[i].revents == 0) continue;
      char buffer[4096];
      const ssize_t count = read(fds[i], buffer, sizeof(buffer));
      if (count > 0) {
        texts[i]->append(buffer, static_cast<std::size_t>(count));
      } else {
        close(fds[i]);
        fds[i] = -1;
        --open_pipes;
      }
    }
  }
}

// A program that was started, and the ends of its pipes.
struct Started {
  pid_t pid;
  int out;
  int err;
};

Started Start(const std::vector<std::string>& command,
              const std::map<std::string, std::string>& environment) {
  int out[2];
  int err[2];
  Check(pipe2(out, O_CLOEXEC) == 0 && pipe2(err, O_CLOEXEC) == 0, "pipes are to be had");
  std::vector<std::string> words = command;
  std::vector<std::string> variables;
  for (char** v = environ; *v != nullptr; ++v) {
    const std::string variable = *v;
    if (!environment.contains(variable.substr(0, variable.find('=')))) {
      variables.push_back(variable);
    }
  }
  for (const auto& [name, value] : environment) {
    variables.push_back(name);
    variables.back().append("=").append(value);
  }
  std::vector<char*> argv = Pointers(words);
  std::vector<char*> envp = Pointers(variables);

  // Not fork: copying the page tables of a sanitized program takes longer than
  // the programs run.
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
  pid_t child = 0;
  const int error = posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  Check(error == 0, "the program starts");
  close(out[1]);
  close(err[1]);
  return {child, out[0], err[0]};
}

}  // namespace

int CountOf(const std::string& text, const std::string& what) {
  int count = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
    ++count;
  }
  return count;
}

Finished RunProgram(const std::vector<std::string>& command,
                    const std::map<std::string, std::string>& environment) {
  return RunningProgram(command, environment).Wait();
}

RunningProgram::RunningProgram(const std::vector<std::string>& command,
                               const std::map<std::string, std::string>& environment) {
  const Started started = Start(command, environment);
  pid_ = started.pid;
  out_ = started.out;
  err_ = started.err;
}

RunningProgram::~RunningProgram() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  Wait();
}

bool RunningProgram::AwaitOutput(const std::string& text) {
  while (finished_.out.find(text) == std::string::npos) {
    char buffer[4096];
    const ssize_t count = read(out_, buffer, sizeof(buffer));
    if (count <= 0) return false;
    finished_.out.append(buffer, static_cast<std::size_t>(count));
  }
  return true;
}

void RunningProgram::Signal(int signal) const { kill(pid_, signal); }

Finished RunningProgram::Wait() {
  Drain({out_, err_}, {&finished_.out, &finished_.err});
  int status = 0;
  Check(waitpid(pid_, &status, 0) == pid_, "the child ends");
  pid_ = 0;
  if (WIFEXITED(status)) finished_.exit_status = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) finished_.signal = WTERMSIG(status);
  return std::move(finished_);
}

}  // namespace divvy::test
