#include "scheduler/cli/settings/process.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/status/status_macros.h"
#include "common/storage/files/descriptor.h"

namespace capstan::cli {
namespace {

// The longest wait for one event, and the polling interval on a kernel without pidfd.
constexpr int64_t kEndPollMs = 100;

struct Stat {
  char state = 0;
  int session = 0;
  int64_t start_time = 0;
};

// Reads fields of /proc/<pid>/stat. The state is 0 if there is no such process.
Stat ReadStat(int pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string line;
  if (!std::getline(file, line)) return {};
  const size_t name_end = line.rfind(')');  // The name itself may contain a ")".
  if (name_end == std::string::npos) return {};
  const std::vector<std::string> fields =
      absl::StrSplit(line.substr(name_end + 1), ' ', absl::SkipEmpty());
  constexpr size_t kStateField = 0, kSessionField = 3, kStartTimeField = 19;  // After the name.
  Stat stat;
  if (fields.size() <= kStartTimeField || !absl::SimpleAtoi(fields[kSessionField], &stat.session) ||
      !absl::SimpleAtoi(fields[kStartTimeField], &stat.start_time)) {
    return {};
  }
  stat.state = fields[kStateField][0];
  return stat;
}

}  // namespace

absl::StatusOr<ProcessId> StartInBackground(SpawnOptions options) {
  options.own_session = true;
  CAPSTAN_ASSIGN_OR_RETURN(const pid_t pid, Spawn(options));
  return ProcessId{pid, ReadStat(pid).start_time};
}

bool IsAlive(const ProcessId& process) {
  const Stat stat = ReadStat(process.pid);
  return stat.state != 0 && stat.state != 'Z' && stat.state != 'X' &&
         stat.start_time == process.start_time;
}

void SendSignal(const ProcessId& process, int signal) {
  if (IsAlive(process)) kill(process.pid, signal);
}

bool AwaitEnd(const std::vector<ProcessId>& processes, absl::Duration limit) {
  const absl::Time deadline = absl::Now() + limit;
  for (const ProcessId& process : processes) {
    const Descriptor pidfd(static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0)));
    // IsAlive runs after the opening of the descriptor. So the descriptor belongs to that process,
    // or the process has ended.
    while (IsAlive(process)) {
      const int64_t left =
          absl::ToInt64Milliseconds(absl::Ceil(deadline - absl::Now(), absl::Milliseconds(1)));
      if (left <= 0) return false;
      struct pollfd end = {pidfd.get(), POLLIN, 0};
      poll(&end, 1, static_cast<int>(std::min<int64_t>(left, kEndPollMs)));
    }
  }
  return true;
}

bool KillSession(const ProcessId& leader) {
  // The kernel does not reuse the leader's pid while the session has members.
  const Stat stat = ReadStat(leader.pid);
  if (stat.state != 0 && stat.start_time != leader.start_time) return false;
  bool found = false;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    int pid = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &pid) || pid == leader.pid) continue;
    const Stat member = ReadStat(pid);
    if (member.state == 0 || member.state == 'Z' || member.session != leader.pid) continue;
    found = kill(pid, SIGKILL) == 0 || found;
  }
  return found;
}

std::string HowItEnded(const ProcessId& child) {
  siginfo_t info = {};
  // WNOWAIT leaves the zombie, so the kernel does not reuse the pid.
  if (waitid(P_PID, static_cast<id_t>(child.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0) {
    return "";
  }
  if (info.si_code == CLD_EXITED) return absl::StrCat("exit code ", info.si_status);
  return absl::StrCat("signal ", info.si_status, " (", strsignal(info.si_status), ")");
}

}  // namespace capstan::cli
