#include "program.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

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

}  // namespace

Finished RunProgram(const std::vector<std::string>& command,
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
  Finished finished;
  Drain({out[0], err[0]}, {&finished.out, &finished.err});
  int status = 0;
  Check(waitpid(child, &status, 0) == child, "the child ends");
  if (WIFEXITED(status)) finished.exit_status = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) finished.signal = WTERMSIG(status);
  return finished;
}

}  // namespace divvy::test
