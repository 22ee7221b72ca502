#include "common/process/subprocess/subprocess.h"

#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

// glibc 2.36 declares pidfd_open without C linkage; this is the same call.
int OpenPidfd(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

ExitStatus Decode(int status) {
  if (WIFSIGNALED(status)) return {.code = 0, .signal = WTERMSIG(status)};
  return {.code = WEXITSTATUS(status), .signal = 0};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Subprocess>> Subprocess::Spawn(SpawnOptions options) {
  options.death_signal = SIGKILL;
  CAPSTAN_ASSIGN_OR_RETURN(const pid_t pid, capstan::Spawn(options));
  Descriptor pidfd(OpenPidfd(pid));
  const int error = errno;
  if (pidfd.ok()) return std::unique_ptr<Subprocess>(new Subprocess(pid, std::move(pidfd)));
  kill(-pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  return absl::UnavailableError(
      absl::StrCat("starting a process: pidfd_open: ", std::strerror(error)));
}

Subprocess::~Subprocess() {
  if (!ended_) {
    Signal(SIGKILL);
    Wait(absl::InfiniteDuration());  // It ends soon, as SIGKILL cannot be refused.
  }
}

void Subprocess::Signal(int signal) {
  if (!ended_) kill(-pid_, signal);  // The pid is ours until waitpid: no other group can have it.
}

std::optional<ExitStatus> Subprocess::Wait(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (!ended_) {
    const absl::Duration left =
        std::clamp(deadline - absl::Now(), absl::ZeroDuration(), absl::Hours(1));
    pollfd waiter{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
    const int64_t left_ms = absl::ToInt64Milliseconds(left + absl::Milliseconds(1));
    const int ready = poll(&waiter, 1, left > absl::ZeroDuration() ? static_cast<int>(left_ms) : 0);
    if (ready == 0 && absl::Now() >= deadline) return std::nullopt;
    if (ready <= 0) continue;
    kill(-pid_, SIGKILL);  // Kills what it left in its group, before waitpid frees the number.
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
  return *Wait(absl::InfiniteDuration());  // It ends soon, as SIGKILL cannot be refused.
}

}  // namespace capstan
