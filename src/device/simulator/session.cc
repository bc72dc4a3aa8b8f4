#include "device/simulator/session.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/types.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "base/result.h"
#include "device/cuda_simulator/spec.h"
#include "device/simulator/gpu_spec.h"
#include "device/simulator/return_names.h"

namespace divvy::device::simulator {
namespace {

// What the environment asks for; read by the first nvmlInit.
struct Options {
  std::string state_path;    // DIVVY_NVML_SIM_STATE
  std::string gpus;          // DIVVY_NVML_SIM_GPUS
  std::string faults;        // DIVVY_NVML_SIM_FAULTS
  std::string count_file;    // DIVVY_NVML_SIM_COUNT_FILE
  CudaMachine cuda_machine;  // DIVVY_CUDA_SIM, DIVVY_CUDA_SIM_SPEC
  bool log = false;          // DIVVY_NVML_SIM_LOG=1
  bool latency = false;      // DIVVY_NVML_SIM_LATENCY=real
  bool privileged = true;    // DIVVY_NVML_SIM_UNPRIVILEGED unset
};

// What a process that uses the library keeps between calls. NVML's interface
// has no object to hold it, so there is one for the process.
struct Session {
  std::mutex mutex;  // Guards the rest.
  int init_count = 0;
  Options options;
  StateStore store{std::string()};  // Nameless until the first nvmlInit.
  FaultRules environment_rules;
  FaultRules state_rules;
  std::string state_rules_text;
  long calls = 0;
  pid_t pid = getpid();  // Whose calls were counted.
};

Session& TheSession() {
  // Leaked: calls may come while the program exits.
  static auto* const session = new Session;
  return *session;
}

void Complain(const std::string& problem) {
  std::fprintf(stderr, "divvy-nvml-sim: %s\n", problem.c_str());
}

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

Result<Options> ReadOptions() {
  Options options;
  options.state_path = Environment("DIVVY_NVML_SIM_STATE");
  options.gpus = Environment("DIVVY_NVML_SIM_GPUS");
  options.faults = Environment("DIVVY_NVML_SIM_FAULTS");
  options.count_file = Environment("DIVVY_NVML_SIM_COUNT_FILE");
  options.cuda_machine = {Environment("DIVVY_CUDA_SIM"), Environment("DIVVY_CUDA_SIM_SPEC")};
  const auto spec = cuda_simulator::ParseSpec(options.cuda_machine.spec);
  if (!options.cuda_machine.path.empty() && !spec) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("DIVVY_CUDA_SIM_SPEC: {}", spec.error().message));
  }
  options.log = Environment("DIVVY_NVML_SIM_LOG") == "1";
  options.privileged = std::getenv("DIVVY_NVML_SIM_UNPRIVILEGED") == nullptr;
  const std::string latency = Environment("DIVVY_NVML_SIM_LATENCY");
  options.latency = latency == "real";
  if (!latency.empty() && !options.latency && latency != "off") {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("DIVVY_NVML_SIM_LATENCY is '{}'; it may be real or off", latency));
  }
  return options;
}

// Counts one call, in the file that was asked for too, so that a test which
// dies can be repeated call by call.
void CountCall(Session& session) {
  if (session.pid != getpid()) {
    session.pid = getpid();
    session.calls = 0;
    session.environment_rules.ResetCounts();
    session.state_rules.ResetCounts();
  }
  ++session.calls;
  if (session.options.count_file.empty()) return;
  const FileDescriptor fd(
      open(session.options.count_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  const std::string text = fmt::format("{}\n", session.calls);
  if (!fd.valid() || write(fd.get(), text.data(), text.size()) < 0) {
    Complain(fmt::format("cannot write {}", session.options.count_file));
  }
}

FaultEffect Merge(const FaultEffect& first, const FaultEffect& second) {
  FaultEffect merged = first;
  merged.delay += second.delay;
  merged.kill |= second.kill;
  merged.kill_after |= second.kill_after;
  if (!merged.error) merged.error = second.error;
  if (!merged.activation) merged.activation = second.activation;
  return merged;
}

// Counts `function` against the rules of the environment and of `state`. Rules
// in the state count from the call that first saw them.
FaultEffect ApplyFaults(Session& session, const State& state, const char* function) {
  if (state.faults != session.state_rules_text) {
    auto rules = FaultRules::Parse(state.faults);
    session.state_rules = rules ? std::move(*rules) : FaultRules();
    session.state_rules_text = state.faults;
  }
  return Merge(session.environment_rules.Apply(function), session.state_rules.Apply(function));
}

// Reads the state file, or makes it when there is none.
Result<State> OpenState(Session& session) {
  const StateLock lock(session.store.path());
  auto state = session.store.Read();
  if (!state && state.error().code == ErrorCode::kNotFound && !session.options.gpus.empty()) {
    auto fresh = ParseGpuSpec(session.options.gpus);
    if (!fresh) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("DIVVY_NVML_SIM_GPUS: {}", fresh.error().message));
    }
    state = session.store.Write(std::move(*fresh));
  }
  if (!state) return Fail(state.error());
  return **state;
}

// Fails with kNotFound where the environment names no GPUs to simulate.
Result<State> FirstInitialise(Session& session) {
  auto options = ReadOptions();
  if (!options) return Fail(options.error());
  const bool new_rules = options->faults != session.options.faults;
  session.options = std::move(*options);
  if (session.options.state_path.empty()) {
    return Fail(ErrorCode::kNotFound,
                "set DIVVY_NVML_SIM_STATE to the file that holds the simulated GPUs "
                "(and DIVVY_NVML_SIM_GPUS, e.g. H200-141GB+mig:2, to have it made)");
  }
  if (new_rules) {
    auto rules = FaultRules::Parse(session.options.faults);
    if (!rules) {
      session.options.faults.clear();
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("DIVVY_NVML_SIM_FAULTS: {}", rules.error().message));
    }
    session.environment_rules = std::move(*rules);
  }
  session.store = StateStore(session.options.state_path);
  auto state = OpenState(session);
  if (!state && state.error().code == ErrorCode::kNotFound) {
    return Fail(
        ErrorCode::kNotFound,
        fmt::format("{}; set DIVVY_NVML_SIM_GPUS, e.g. to H200-141GB+mig:2, to have it made",
                    state.error().message));
  }
  return state;
}

// Sleeps without the locks, so that others go on meanwhile.
void Pause(std::unique_lock<std::mutex>& process_lock, std::chrono::microseconds time) {
  if (time.count() == 0) return;
  process_lock.unlock();
  std::this_thread::sleep_for(time);
  process_lock.lock();
}

[[noreturn]] void KillSelf() {
  std::raise(SIGKILL);
  std::abort();  // Not reached.
}

}  // namespace

nvml::Return Initialise(const char* function) {
  Session& session = TheSession();
  std::unique_lock lock(session.mutex);
  Result<State> state = State();
  if (session.init_count == 0) {
    state = FirstInitialise(session);
  } else {
    state = OpenState(session);
  }
  CountCall(session);
  if (!state) {
    Complain(state.error().message);
    return state.error().code == ErrorCode::kNotFound ? nvml::kDriverNotLoaded : nvml::kUnknown;
  }
  const FaultEffect effect = ApplyFaults(session, *state, function);
  Pause(lock, effect.delay);
  if (effect.kill) KillSelf();
  if (effect.error) return *effect.error;
  ++session.init_count;
  if (effect.kill_after) KillSelf();
  return nvml::kSuccess;
}

nvml::Return Shutdown(const char* function) {
  Call call(function);
  const auto leave = [](Call&) {
    --TheSession().init_count;
    return nvml::kSuccess;
  };
  const nvml::Return code = call.AnswerQuery(leave);
  // Whoever lost the GPUs can still leave.
  return code == nvml::kGpuIsLost && !call.readable() ? leave(call) : code;
}

Call::Call(const char* function) : function_(function), process_lock_(TheSession().mutex) {
  Session& session = TheSession();
  if (session.init_count == 0) {
    refusal_ = nvml::kUninitialized;
    return;
  }
  entered_ = true;
  CountCall(session);
  Refresh();
  if (refusal_) return;
  effect_ = ApplyFaults(session, state_, function);
  if (effect_.delay.count() > 0) {
    file_lock_.reset();
    Pause(process_lock_, effect_.delay);
    Refresh();
    if (refusal_) return;
  }
  refusal_ = effect_.error;
}

void Call::Refresh() {
  Session& session = TheSession();
  file_lock_.emplace(session.store.path());
  const auto state = session.store.Read();
  readable_ = state.has_value();
  if (state) {
    state_ = **state;
    return;
  }
  // The driver's memory is gone or spoilt under a running program.
  Complain(state.error().message);
  refusal_ = nvml::kGpuIsLost;
}

const CudaMachine& Call::cuda_machine() { return TheSession().options.cuda_machine; }

bool Call::privileged() const {
  const Session& session = TheSession();
  return session.options.privileged && session.store.Writable();
}

void Call::Die() { KillSelf(); }

nvml::Return Call::CommitChange(nvml::Return code, const ChangeRecord& record) {
  if (!entered_) return code;
  Session& session = TheSession();
  if (code == nvml::kSuccess) {
    if (const auto written = session.store.Write(std::move(state_)); !written) {
      Complain(written.error().message);
      code = nvml::kUnknown;
    }
  }
  Log(record, ReturnName(code));
  if (effect_.kill_after) Die();
  if (code == nvml::kSuccess && session.options.latency) {
    file_lock_.reset();
    Pause(process_lock_, record.latency);
  }
  return code;
}

void Call::Log(const ChangeRecord& record, const std::string& result) const {
  const Session& session = TheSession();
  if (!session.options.log) return;
  const auto show = [](const auto& value) { return value ? fmt::format("{}", *value) : "-"; };
  const std::string line = fmt::format(
      "pid={} {} gpu={} gi={} ci={} profile={} start={}{}{} result={}{}\n", getpid(), function_,
      show(record.gpu), show(record.gpu_instance), show(record.compute_instance),
      show(record.profile), show(record.start), record.detail.empty() ? "" : " ", record.detail,
      result, effect_.error ? " injected" : "");
  const std::string path = session.store.path() + ".log";
  const FileDescriptor fd(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!fd.valid() || write(fd.get(), line.data(), line.size()) < 0) {
    Complain(fmt::format("cannot write {}", path));
  }
}

}  // namespace divvy::device::simulator
