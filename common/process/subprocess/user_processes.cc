#include "common/process/subprocess/user_processes.h"

#include <linux/capability.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/status/status_macros.h"
#include "common/storage/files/descriptor.h"

namespace capstan {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(2);
constexpr pid_t kNone = 0;
constexpr int kExitNotTheUser = 1;

// The real user of a process; nothing if it is gone, or has ended and waits for its parent.
std::optional<uid_t> UserOf(const std::string& process) {
  std::ifstream status(absl::StrCat("/proc/", process, "/status"));
  std::string line;
  while (std::getline(status, line)) {
    if (absl::StartsWith(line, "State:\tZ")) return std::nullopt;
    if (!absl::StartsWith(line, "Uid:\t")) continue;
    const std::vector<std::string> users = absl::StrSplit(line, '\t');
    uint32_t user = 0;
    if (users.size() > 1 && absl::SimpleAtoi(users[1], &user)) return user;
  }
  return std::nullopt;
}

// A process of that user, or kNone.
absl::StatusOr<pid_t> FindProcessOf(uid_t user) {
  std::error_code error;
  std::filesystem::directory_iterator entry("/proc", error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    pid_t process = kNone;
    if (absl::SimpleAtoi(name, &process) && UserOf(name) == user) return process;
  }
  if (error) return absl::UnavailableError(absl::StrCat("/proc: ", error.message()));
  return kNone;
}

// Sends SIGKILL to all processes of the user, from a process of that user: so the signal reaches
// nobody else, and the kernel sends it to all at once, while none of them can fork. False: one of
// them has ended the sender before.
absl::StatusOr<bool> SignalAllOf(uid_t user) {
  const pid_t sender = fork();
  if (sender < 0) return absl::UnavailableError(absl::StrCat("fork: ", std::strerror(errno)));
  if (sender == 0) {
    if (!BecomeUser(user)) _exit(kExitNotTheUser);
    kill(-1, SIGKILL);  // Not to the sender itself.
    _exit(0);
  }
  int status = 0;
  while (waitpid(sender, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) return false;
  if (WEXITSTATUS(status) == 0) return true;
  return absl::UnavailableError(absl::StrCat("no process can become one of user ", user));
}

// Waits until the process is gone, but not beyond the deadline.
void AwaitEnd(pid_t process, absl::Time deadline) {
  const Descriptor ended(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
  if (!ended.ok()) return;  // It is gone.
  pollfd waiter{.fd = ended.get(), .events = POLLIN, .revents = 0};
  const absl::Duration left = deadline - absl::Now();
  poll(&waiter, 1,
       left > absl::ZeroDuration() ? static_cast<int>(left / absl::Milliseconds(1)) : 0);
}

}  // namespace

bool BecomeUser(uid_t user) {
  // As system calls: those of the C library change all threads of a process, and take locks.
  const long id = static_cast<long>(user);
  if (user == 0 || syscall(SYS_setgroups, 0L, nullptr) != 0 ||
      syscall(SYS_setresgid, id, id, id) != 0 || syscall(SYS_setresuid, id, id, id) != 0) {
    if (user == 0) errno = EINVAL;
    return false;
  }
  // The kernel has dropped them, unless it was told not to (securebits).
  __user_cap_header_struct head{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
  return syscall(SYS_capset, &head, none) == 0;
}

absl::Status KillProcessesOf(uid_t user) {
  const absl::Time deadline = absl::Now() + kPatience;
  while (true) {
    CAPSTAN_ASSIGN_OR_RETURN(const bool sent, SignalAllOf(user));
    CAPSTAN_ASSIGN_OR_RETURN(const pid_t process, FindProcessOf(user));
    if (sent && process == kNone) return absl::OkStatus();
    if (absl::Now() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("process ", process, " of user ", user, " does not end"));
    }
    if (process != kNone) AwaitEnd(process, deadline);
  }
}

absl::StatusOr<bool> HasProcesses(uid_t user) {
  CAPSTAN_ASSIGN_OR_RETURN(const pid_t process, FindProcessOf(user));
  return process != kNone;
}

}  // namespace capstan
