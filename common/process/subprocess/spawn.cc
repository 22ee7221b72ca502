#include "common/process/subprocess/spawn.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/process/subprocess/user_processes.h"
#include "common/storage/files/descriptor.h"
#include "common/storage/files/private_files.h"

namespace capstan {
namespace {

constexpr int kExitExecFailed = 127;  // Shells use this code as well.

// Holds all that the child needs. It is made before the fork, since the child may not allocate.
struct ChildPlan {
  const char* program = nullptr;
  const char* directory = nullptr;  // If null, the child stays where it is.
  char* const* argv = nullptr;
  char* const* envp = nullptr;
  int input = -1;
  int output = -1;
  int errors = -1;
  int error_pipe = -1;  // The child writes errno here if it cannot start.
  bool own_session = false;
  std::optional<uid_t> user;
  bool no_new_privileges = false;
  int death_signal = 0;
  pid_t parent = 0;
};

// Drops the rights that the child is not to have. False: it cannot, and errno says why.
bool DropRights(const ChildPlan& plan) {
  if (plan.user.has_value() && !BecomeUser(*plan.user)) return false;
  return !plan.no_new_privileges || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
}

// Runs in the child between fork and exec, where only async-signal-safe calls are allowed.
[[noreturn]] void RunChild(const ChildPlan& plan) {
  if (plan.own_session) {
    setsid();
  } else {
    setpgid(0, 0);
  }
  const bool dropped = DropRights(plan);
  const int why_not = errno;
  if (plan.death_signal != 0) {  // The kernel forgets it where the user changes.
    prctl(PR_SET_PDEATHSIG, plan.death_signal);
    if (getppid() != plan.parent) _exit(kExitExecFailed);  // The parent died before the prctl.
  }
  for (const int each : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT, SIGCHLD}) signal(each, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  errno = why_not;
  if (dropped && dup2(plan.input, STDIN_FILENO) >= 0 && dup2(plan.output, STDOUT_FILENO) >= 0 &&
      dup2(plan.errors, STDERR_FILENO) >= 0 &&
      (plan.directory == nullptr || chdir(plan.directory) == 0)) {
    // Files that some library opened without O_CLOEXEC are closed by the exec. Linux before 5.11
    // refuses this: then the child inherits them.
    syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC);
    execve(plan.program, plan.argv, plan.envp);
  }
  const int error = errno;
  [[maybe_unused]] const ssize_t ignored = write(plan.error_pipe, &error, sizeof error);
  _exit(kExitExecFailed);
}

// Returns what the child inherits of this process's environment, with the additions.
std::vector<std::string> MergeEnvironment(const SpawnOptions& options) {
  const std::vector<std::pair<std::string, std::string>>& changes = options.environment;
  const auto is_changed = [&](auto from, std::string_view key) {
    return std::any_of(from, changes.end(),
                       [&](const auto& change) { return change.first == key; });
  };
  std::vector<std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view key = text.substr(0, text.find('='));
    const bool inherited =
        options.inherits == nullptr || options.inherits({key.data(), key.size()});
    if (inherited && !is_changed(changes.begin(), key)) merged.emplace_back(text);
  }
  for (auto change = changes.begin(); change != changes.end(); ++change) {
    if (is_changed(change + 1, change->first)) continue;
    merged.push_back(absl::StrCat(change->first, "=", change->second));
  }
  return merged;
}

// Returns the pointers that execve takes; they point into `strings`.
std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

absl::Status CannotStart(absl::string_view what, int error) {
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

}  // namespace

absl::StatusOr<pid_t> Spawn(const SpawnOptions& options) {
  std::vector<std::string> args = {options.name.empty() ? options.program : options.name};
  args.insert(args.end(), options.args.begin(), options.args.end());
  std::vector<std::string> environment = MergeEnvironment(options);
  const std::vector<char*> argv = Pointers(args);
  const std::vector<char*> envp = Pointers(environment);

  const Descriptor input(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!input.ok()) return CannotStart("/dev/null", errno);
  const Descriptor output(open(options.output_file.c_str(),
                               O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, kPrivateFileMode));
  if (!output.ok()) return CannotStart(absl::StrCat("output file ", options.output_file), errno);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return CannotStart("pipe", errno);
  const Descriptor error_reader(ends[0]);
  std::optional<Descriptor> error_writer(ends[1]);

  const ChildPlan plan{.program = options.program.c_str(),
                       .directory = options.directory.empty() ? nullptr : options.directory.c_str(),
                       .argv = argv.data(),
                       .envp = envp.data(),
                       .input = options.input >= 0 ? options.input : input.get(),
                       .output = options.output >= 0 ? options.output : output.get(),
                       .errors = output.get(),
                       .error_pipe = error_writer->get(),
                       .own_session = options.own_session,
                       .user = options.user,
                       .no_new_privileges = options.no_new_privileges,
                       .death_signal = options.death_signal,
                       .parent = getpid()};
  const pid_t pid = fork();
  if (pid < 0) return CannotStart("fork", errno);
  if (pid == 0) RunChild(plan);
  if (!options.own_session) setpgid(pid, pid);  // Parent and child both do it, in either order.
  error_writer.reset();
  const int error = ReadExecError(error_reader.get());
  if (error == 0) return pid;
  waitpid(pid, nullptr, 0);
  if (options.directory.empty()) return CannotStart(options.program, error);
  return CannotStart(absl::StrCat(options.program, " in ", options.directory), error);
}

}  // namespace capstan
