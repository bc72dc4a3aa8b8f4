#include "device/cuda_simulator/test_program.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <filesystem>

namespace divvy::device::cuda_simulator {

void Link::Tell() const {
  const char word = 'w';
  ASSERT_EQ(write(out_, &word, 1), 1);
}

bool Link::Await() const {
  char word = 0;
  return read(in_, &word, 1) == 1;
}

bool Link::HasWord() const {
  pollfd descriptor{.fd = in_, .events = POLLIN, .revents = 0};
  return poll(&descriptor, 1, 0) == 1;
}

Program::Program(const Environment& environment, const std::function<void(Link&)>& body) {
  int pair[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  pid_ = fork();
  if (pid_ == 0) {
    close(pair[0]);
    // A test that dies takes its programs along, and one that hangs does not hang for long.
    alarm(60);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    Link link(pair[1], pair[1]);
    body(link);
    // Without the checks of leaks at a normal end: those of a fork see the parent's memory too.
    const int failed = ::testing::Test::HasFailure() ? 1 : 0;
    if (environment.contains("DIVVY_CUDA_SIM_STATS")) exit(failed);
    _exit(failed);
  }
  close(pair[1]);
  descriptors_[0] = pair[0];
  link_ = Link(pair[0], pair[0]);
}

Program::~Program() {
  if (pid_ > 0) {
    Kill();
    Join();
  }
  close(descriptors_[0]);
}

void Program::Kill() { kill(pid_, SIGKILL); }

int Program::Join() {
  int status = -1;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return status;
}

CudaSimTest::CudaSimTest() {
  std::string name = std::filesystem::temp_directory_path() / "divvy-cuda-sim-XXXXXX";
  EXPECT_NE(mkdtemp(name.data()), nullptr);
  folder_ = name;
  environment_ = {{"DIVVY_CUDA_SIM", File("machine")}};
}

CudaSimTest::~CudaSimTest() { std::filesystem::remove_all(folder_); }

Environment CudaSimTest::With(const Environment& extra) const {
  Environment all = extra;
  all.insert(environment_.begin(), environment_.end());
  return all;
}

void CudaSimTest::Run(const std::function<void()>& body, const Environment& extra) const {
  Program program(With(extra), [&](Link&) { body(); });
  ASSERT_EQ(program.Join(), 0);
}

Session::Session() {
  EXPECT_EQ(cuInit(0), cuda::kSuccess);
  EXPECT_EQ(cuDevicePrimaryCtxRetain(&context, 0), cuda::kSuccess);
  EXPECT_EQ(cuCtxSetCurrent(context), cuda::kSuccess);
  EXPECT_EQ(cuModuleLoadData(&module, "kernel timed param_us=1\nkernel fixed us=250 per_sm=4\n"),
            cuda::kSuccess);
  EXPECT_EQ(cuModuleGetFunction(&kernel, module, "timed"), cuda::kSuccess);
  stream = NewStream();
}

cuda::Result Session::Launch(float us, unsigned blocks, cuda::Stream on) const {
  void* parameters[] = {&us};
  return cuLaunchKernel(kernel, blocks, 1, 1, 1024, 1, 1, 0, on, parameters, nullptr);
}

cuda::Stream Session::NewStream(unsigned flags) const {
  cuda::Stream made = nullptr;
  EXPECT_EQ(cuStreamCreate(&made, flags), cuda::kSuccess);
  return made;
}

cuda::Event Session::NewEvent(unsigned flags) const {
  cuda::Event made = nullptr;
  EXPECT_EQ(cuEventCreate(&made, flags), cuda::kSuccess);
  return made;
}

cuda::Event Session::Recorded(cuda::Stream on) const {
  const cuda::Event event = NewEvent();
  EXPECT_EQ(cuEventRecord(event, on), cuda::kSuccess);
  return event;
}

float Session::Elapsed(cuda::Event from, cuda::Event to) const {
  float milliseconds = -1;
  EXPECT_EQ(cuEventElapsedTime(&milliseconds, from, to), cuda::kSuccess);
  return milliseconds;
}

volatile unsigned* Session::NewWord() const {
  void* memory = nullptr;
  EXPECT_EQ(cuMemHostAlloc(&memory, 4096, 2), cuda::kSuccess);
  return static_cast<volatile unsigned*>(memory);
}

cuda::Result Session::WaitFor(volatile unsigned* word, unsigned value, cuda::Stream on) const {
  return cuStreamWaitValue32_v2(on, AddressOf(word), value, cuda::kWaitValueGeq);
}

void Session::Settle() const {
  // What ends after them in the engine's order was looked at after them. No SM is needed for it.
  const cuda::Stream probe = NewStream();
  EXPECT_EQ(cuLaunchHostFunc(probe, [](void*) {}, nullptr), cuda::kSuccess);
  EXPECT_EQ(cuStreamSynchronize(probe), cuda::kSuccess);
}

void Session::SetSlice(std::uint64_t us) const {
  ASSERT_FALSE(KernelModuleOfProgram().asked.empty());
  KernelModule::Asked again = KernelModuleOfProgram().asked.front();
  again.control.parameters = AddressOf(&us);
  EXPECT_EQ(divvy_sim_rm_control(again.descriptor, again.request, &again.control), 0);
  EXPECT_EQ(again.control.status, kRmOk);
}

KernelModule& KernelModuleOfProgram() {
  static KernelModule module;
  return module;
}

}  // namespace divvy::device::cuda_simulator

extern "C" int ioctl(int descriptor, unsigned long request, ...) noexcept {
  using namespace divvy::device::cuda_simulator;
  va_list arguments;
  va_start(arguments, request);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  if (request != kRmControl) {
    return static_cast<int>(syscall(SYS_ioctl, descriptor, request, argument));
  }
  auto& control = *static_cast<RmControl*>(argument);
  auto& microseconds = *reinterpret_cast<std::uint64_t*>(control.parameters);
  KernelModule& module = KernelModuleOfProgram();
  module.asked.push_back({descriptor, request, control, microseconds});
  if (!module.present) {
    errno = ENOTTY;
    return -1;
  }
  if (module.instead_us != 0) microseconds = module.instead_us;
  return divvy_sim_rm_control(descriptor, request, argument);
}
