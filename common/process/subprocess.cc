#include "common/process/subprocess.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace capstan {
namespace {

constexpr int kExitExecFailed = 127;  // As shells do.

// A file descriptor that closes itself.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  ~Fd() { Close(); }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

// glibc 2.36 declares pidfd_open without C linkage; this is the same call.
int OpenPidfd(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

// All that the child needs, made before the fork: afterwards it may not allocate.
struct ChildPlan {
  const char* program = nullptr;
  char* const* argv = nullptr;
  char* const* envp = nullptr;
  int input = -1;
  int output = -1;
  int error_pipe = -1;  // The child writes errno here if it cannot start.
  pid_t parent = 0;
};

// Runs in the child between fork and exec: async-signal-safe calls only.
[[noreturn]] void RunChild(const ChildPlan& plan) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != plan.parent) _exit(kExitExecFailed);  // The parent died before the prctl.
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  signal(SIGINT, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
  if (dup2(plan.input, STDIN_FILENO) >= 0 && dup2(plan.output, STDOUT_FILENO) >= 0 &&
      dup2(plan.output, STDERR_FILENO) >= 0) {
    // Whatever some library opened without O_CLOEXEC ends here; an old kernel refuses, which is no
    // harm.
    syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC);
    execve(plan.program, plan.argv, plan.envp);
  }
  const int error = errno;
  [[maybe_unused]] const ssize_t ignored = write(plan.error_pipe, &error, sizeof error);
  _exit(kExitExecFailed);
}

// This process's environment with `changes` made.
std::vector<std::string> MergeEnvironment(
    const std::vector<std::pair<std::string, std::string>>& changes) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view key = text.substr(0, text.find('='));
    const bool changed = std::any_of(changes.begin(), changes.end(),
                                     [&](const auto& change) { return change.first == key; });
    if (!changed) merged.emplace_back(text);
  }
  for (const auto& [key, value] : changes) merged.push_back(absl::StrCat(key, "=", value));
  return merged;
}

// The pointers that execve takes; they point into `strings`.
std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

absl::Status Failed(absl::string_view what, int error) {
  const std::string message = absl::StrCat("starting a process: ", what, ": ", strerror(error));
  return error == ENOENT ? absl::NotFoundError(message) : absl::UnavailableError(message);
}

// Waits until the child runs the program (the pipe closes) or says why it cannot.
int ReadExecError(int pipe) {
  int error = 0;
  ssize_t n;
  do {
    n = read(pipe, &error, sizeof error);
  } while (n < 0 && errno == EINTR);
  return n == sizeof error ? error : 0;
}

ExitStatus Decode(int status) {
  if (WIFSIGNALED(status)) return {.code = 0, .signal = WTERMSIG(status)};
  return {.code = WEXITSTATUS(status), .signal = 0};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Subprocess>> Subprocess::Spawn(const SpawnOptions& options) {
  std::vector<std::string> args = {options.name.empty() ? options.program : options.name};
  args.insert(args.end(), options.args.begin(), options.args.end());
  std::vector<std::string> environment = MergeEnvironment(options.environment);
  const std::vector<char*> argv = Pointers(args);
  const std::vector<char*> envp = Pointers(environment);

  const Fd input(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (input.get() < 0) return Failed("/dev/null", errno);
  const Fd output(
      open(options.output_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (output.get() < 0) return Failed(absl::StrCat("output file ", options.output_file), errno);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Failed("pipe", errno);
  const Fd error_reader(ends[0]);
  Fd error_writer(ends[1]);

  const ChildPlan plan{options.program.c_str(), argv.data(), envp.data(), input.get(), output.get(),
                       error_writer.get(),      getpid()};
  const pid_t pid = fork();
  if (pid < 0) return Failed("fork", errno);
  if (pid == 0) RunChild(plan);
  setpgid(pid, pid);  // Both sides do it: whoever comes first.
  error_writer.Close();
  const int error = ReadExecError(error_reader.get());
  const int pidfd = error == 0 ? OpenPidfd(pid) : -1;
  const int pidfd_error = errno;
  if (pidfd < 0) {
    kill(-pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    return error != 0 ? Failed(options.program, error) : Failed("pidfd_open", pidfd_error);
  }
  return std::unique_ptr<Subprocess>(new Subprocess(pid, pidfd));
}

Subprocess::~Subprocess() {
  if (!ended_) {
    Signal(SIGKILL);
    Wait(absl::InfiniteDuration());  // Bounded: SIGKILL cannot be refused.
  }
  close(pidfd_);
}

void Subprocess::Signal(int signal) {
  if (!ended_) kill(-pid_, signal);  // The pid is ours until waitpid: no other group can have it.
}

std::optional<ExitStatus> Subprocess::Wait(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (!ended_) {
    const absl::Duration left =
        std::clamp(deadline - absl::Now(), absl::ZeroDuration(), absl::Hours(1));
    pollfd waiter{.fd = pidfd_, .events = POLLIN, .revents = 0};
    const int64_t left_ms = absl::ToInt64Milliseconds(left + absl::Milliseconds(1));
    const int ready = poll(&waiter, 1, left > absl::ZeroDuration() ? static_cast<int>(left_ms) : 0);
    if (ready == 0 && absl::Now() >= deadline) return std::nullopt;
    if (ready <= 0) continue;
    kill(-pid_, SIGKILL);  // What it left behind in its group; before waitpid frees the number.
    int status = 0;
    pid_t waited;
    do {
      waited = waitpid(pid_, &status, 0);
    } while (waited < 0 && errno == EINTR);
    ended_ = Decode(status);
  }
  return ended_;
}

ExitStatus Subprocess::Terminate(absl::Duration grace) {
  Signal(SIGTERM);
  if (const auto ended = Wait(grace)) return *ended;
  Signal(SIGKILL);
  return *Wait(absl::InfiniteDuration());  // Bounded: SIGKILL cannot be refused.
}

}  // namespace capstan
