#include "scheduler/cli/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"

namespace capstan::cli {
namespace {

// Longest wait for one event: a kernel without pidfd is asked again this often.
constexpr int64_t kEndPollMs = 100;

struct Stat {
  char state = 0;
  int session = 0;
  int64_t start_time = 0;
};

// Fields of /proc/<pid>/stat; state 0 if there is no such process.
Stat ReadStat(int pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string line;
  if (!std::getline(file, line)) return {};
  const size_t name_end = line.rfind(')');  // The name before it may hold anything.
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

// What the child does between fork and exec: async-signal-safe calls only. Writes errno to `report`
// if it does not get to exec.
[[noreturn]] void BecomeProgram(char* const* arguments, const char* directory, int input,
                                int output, bool end_with_parent, pid_t parent, int report) {
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT, SIGCHLD}) {
    sigaction(signal, &standard, nullptr);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  setsid();
  bool ready = dup2(input, STDIN_FILENO) >= 0 && dup2(output, STDOUT_FILENO) >= 0 &&
               dup2(output, STDERR_FILENO) >= 0 && chdir(directory) == 0;
  if (ready && end_with_parent) {
    ready = prctl(PR_SET_PDEATHSIG, SIGTERM) == 0;
    if (getppid() != parent) _exit(1);  // It ended before the request.
  }
  if (ready) execv(arguments[0], arguments);
  const int error = errno;
  [[maybe_unused]] const auto ignored = write(report, &error, sizeof(error));
  _exit(127);
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { Close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

}  // namespace

absl::StatusOr<ProcessId> Spawn(const SpawnOptions& options) {
  const Descriptor input(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Descriptor output(
      open(options.output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (output.get() < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(options.output, ": cannot be written"));
  }
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "no pipe");
  const Descriptor report_read(ends[0]);
  Descriptor report_write(ends[1]);
  std::vector<char*> arguments;
  for (const std::string& word : options.command)
    arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return absl::ErrnoToStatus(errno, absl::StrCat(options.command[0], ": no process"));
  if (pid == 0) {
    BecomeProgram(arguments.data(), options.directory.c_str(), input.get(), output.get(),
                  options.end_with_parent, parent, report_write.get());
  }
  report_write.Close();
  int error = 0;
  ssize_t count = 0;
  do {
    count = read(report_read.get(), &error, sizeof(error));  // 0 bytes: exec closed the pipe.
  } while (count < 0 && errno == EINTR);
  if (count == static_cast<ssize_t>(sizeof(error))) {
    waitpid(pid, nullptr, 0);
    return absl::ErrnoToStatus(error, absl::StrCat(options.command[0], ": cannot be started"));
  }
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
    // Looked at after the descriptor is had: it is that process's, or the process is gone.
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
  // While members are left the kernel gives the leader's pid to nobody else.
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
  // WNOWAIT leaves the zombie, so that the pid stays taken.
  if (waitid(P_PID, static_cast<id_t>(child.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0) {
    return "";
  }
  if (info.si_code == CLD_EXITED) return absl::StrCat("exit code ", info.si_status);
  return absl::StrCat("signal ", info.si_status, " (", strsignal(info.si_status), ")");
}

}  // namespace capstan::cli
