#include "scheduler/admission/job_check_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/process/harmless_variables.h"
#include "common/process/subprocess/subprocess.h"
#include "common/status/status_macros.h"
#include "common/storage/files/allowed_paths.h"
#include "common/storage/files/descriptor.h"
#include "common/storage/files/file_bytes.h"
#include "common/storage/files/path_access.h"
#include "common/time/duration_text.h"
#include "scheduler/admission/job_check.pb.h"

namespace capstan::scheduler {
namespace {

// The initial values, which follow the message, do not count.
constexpr int64_t kAnswerBytesMax = int64_t{64} << 20;
constexpr int kExitNoMemory = 3;
constexpr int kExitNoRequest = 4;
constexpr int kExitNoAnswer = 5;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kLimitsMemory = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kLimitsMemory = false;
#else
constexpr bool kLimitsMemory = true;
#endif
#else
constexpr bool kLimitsMemory = true;
#endif

// ---------------------------------------------------------------- The child

bool Limit(__rlimit_resource resource, int64_t soft, int64_t hard) {
  const rlimit limit = {.rlim_cur = static_cast<rlim_t>(soft),
                        .rlim_max = static_cast<rlim_t>(hard)};
  return setrlimit(resource, &limit) == 0;
}

bool LimitMyself(const JobCheckRequest& request) {
  // Without it a bad_alloc would look like a crash.
  std::set_new_handler([] { _exit(kExitNoMemory); });
  const int64_t memory = request.memory_bytes();
  const int64_t seconds = request.cpu_seconds();
  return Limit(RLIMIT_CORE, 0, 0) && Limit(RLIMIT_FSIZE, 0, 0) &&
         Limit(RLIMIT_CPU, seconds, seconds + 1) &&  // SIGXCPU, and SIGKILL a second later.
         (!kLimitsMemory || Limit(RLIMIT_DATA, memory, memory)) &&
         prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
}

absl::Status ConfineMyself(const JobCheckRequest& request) {
  if (!request.confined()) return absl::OkStatus();
  const std::vector<std::string> rules(request.allow_path().begin(), request.allow_path().end());
  CAPSTAN_ASSIGN_OR_RETURN(AllowedPaths allowed, AllowedPaths::Parse(rules));
  return ConfinePaths(std::move(allowed));
}

bool WriteOut(const void* bytes, size_t count) {
  return WriteAll(STDOUT_FILENO, {static_cast<const char*>(bytes), count});
}

JobCheckAnswer AnswerOf(const JobCheck& check) {
  JobCheckAnswer answer;
  for (const Diagnostic& each : check.diagnostics) answer.add_diagnostics(each.ToString());
  answer.mutable_warnings()->Assign(check.warnings.begin(), check.warnings.end());
  answer.set_classes(check.plan.classes);
  answer.mutable_tables()->Assign(check.tables.begin(), check.tables.end());
  answer.mutable_class_names()->Assign(check.class_names.begin(), check.class_names.end());
  answer.mutable_train_blocks()->Assign(check.train_blocks.begin(), check.train_blocks.end());
  answer.mutable_test_blocks()->Assign(check.test_blocks.begin(), check.test_blocks.end());
  answer.mutable_validation_blocks()->Assign(check.validation_blocks.begin(),
                                             check.validation_blocks.end());
  answer.set_train_count(check.train_count);
  answer.set_test_count(check.test_count);
  answer.set_validation_count(check.validation_count);
  for (const auto& values : check.initial_values) {
    answer.add_initial_counts(static_cast<int64_t>(values.size()));
  }
  return answer;
}

// ---------------------------------------------------------------- The scheduler

absl::Status Stopped(const v1::JobSpec& spec, absl::string_view why, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat("admission of job \"", spec.name(),
                                                 "\" was stopped: ", why, ", expected ", expected));
}

absl::Status TookTooLong(const JobCheckLimits& limits, const v1::JobSpec& spec) {
  return Stopped(
      spec, "the check of its data took too long",
      absl::StrCat("at most ", DurationText(limits.time), " (capstan-scheduler --admission-time)"));
}

// Returns the error for a child that ended without a whole answer.
absl::Status EndOf(const JobCheckLimits& limits, const v1::JobSpec& spec, const ExitStatus& end) {
  if (end.signal == SIGXCPU) return TookTooLong(limits, spec);
  if (end.signal == 0 && end.code == kExitNoMemory) {
    return Stopped(spec, "the check of its data needs more memory",
                   absl::StrCat("at most ", limits.memory_bytes >> 20,
                                " MiB (capstan-scheduler --admission-memory-mib)"));
  }
  const std::string how =
      end.signal != 0 ? absl::StrCat("by signal ", end.signal, " (", strsignal(end.signal), ")")
                      : absl::StrCat("with exit code ", end.code);
  return Stopped(spec, absl::StrCat("the check of its data ended ", how), "data that can be read");
}

// Waits for the child, up to a deadline or until the check is to be given up.
class Patience {
 public:
  Patience(int stop, absl::Time deadline) : stop_(stop), deadline_(deadline) {}

  // Returns true if `fd` becomes readable, or reaches its end, before the deadline or the stop.
  bool Await(int fd) {
    while (true) {
      const absl::Duration left =
          std::clamp(deadline_ - absl::Now(), absl::ZeroDuration(), absl::Hours(1));
      if (left == absl::ZeroDuration()) return false;
      pollfd waiters[] = {{.fd = fd, .events = POLLIN, .revents = 0},
                          {.fd = stop_, .events = POLLIN, .revents = 0}};
      const int ready = poll(waiters, 2, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
      given_up_ = ready > 0 && waiters[1].revents != 0;
      if (ready > 0) return !given_up_;
      if (ready < 0 && errno != EINTR) return false;
    }
  }
  bool given_up() const { return given_up_; }

 private:
  const int stop_;
  const absl::Time deadline_;
  bool given_up_ = false;
};

// Reads what the child writes.
class Answer {
 public:
  Answer(int fd, Patience* patience) : fd_(fd), patience_(*patience) {}

  // Fills `to`. Returns false if the answer ends earlier, or `patience_` does.
  bool Read(void* to, size_t bytes) {
    char* next = static_cast<char*>(to);
    while (bytes > 0) {
      if (!patience_.Await(fd_)) return false;
      const ssize_t got = read(fd_, next, bytes);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      next += got;
      bytes -= static_cast<size_t>(got);
    }
    return true;
  }

 private:
  const int fd_;
  Patience& patience_;
};

enum class Received { kWhole, kCut, kWrong };

// Reads the message from the answer. kWrong: no child that does its work sends such an answer.
Received ReadMessage(Answer& answer, JobCheckAnswer* message) {
  uint64_t bytes = 0;
  if (!answer.Read(&bytes, sizeof bytes)) return Received::kCut;
  if (bytes > static_cast<uint64_t>(kAnswerBytesMax)) return Received::kWrong;
  std::string text(bytes, '\0');
  if (!answer.Read(text.data(), text.size())) return Received::kCut;
  return message->ParseFromString(text) ? Received::kWhole : Received::kWrong;
}

// Whether the message's numbers are possible ones.
bool IsPossible(const JobCheckAnswer& message, int64_t memory_bytes) {
  if (message.diagnostics_size() > 0) return message.initial_counts_size() == 0;
  const auto negative = [](int64_t count) { return count < 0; };
  for (const auto* blocks :
       {&message.train_blocks(), &message.test_blocks(), &message.validation_blocks()}) {
    if (std::any_of(blocks->begin(), blocks->end(), negative)) return false;
  }
  if (message.train_count() < 1 || message.test_count() < 0 || message.validation_count() < 0 ||
      message.classes() < 0) {
    return false;
  }
  const int tables = message.initial_counts_size();
  if (tables != 0 && tables != message.tables_size()) return false;
  int64_t room = memory_bytes / static_cast<int64_t>(sizeof(float));
  for (int i = 0; i < message.tables_size(); ++i) {
    if (message.tables(i).elements() < 0) return false;
    const int64_t count = tables == 0 ? 0 : message.initial_counts(i);
    if (count < 0 || count > room || (count > 0 && count != message.tables(i).elements())) {
      return false;
    }
    room -= count;
  }
  return true;
}

JobCheck CheckOf(JobCheckAnswer message) {
  JobCheck check;
  for (std::string& text : *message.mutable_diagnostics()) {
    check.diagnostics.push_back(
        {.field = "", .value = "", .expected = "", .message = std::move(text)});
  }
  check.warnings.assign(message.warnings().begin(), message.warnings().end());
  check.plan.classes = message.classes();
  check.tables.assign(message.tables().begin(), message.tables().end());
  check.class_names.assign(message.class_names().begin(), message.class_names().end());
  check.train_blocks.assign(message.train_blocks().begin(), message.train_blocks().end());
  check.test_blocks.assign(message.test_blocks().begin(), message.test_blocks().end());
  check.validation_blocks.assign(message.validation_blocks().begin(),
                                 message.validation_blocks().end());
  check.train_count = message.train_count();
  check.test_count = message.test_count();
  check.validation_count = message.validation_count();
  return check;
}

Received ReadCheck(Answer& answer, int64_t memory_bytes, JobCheck* check) {
  JobCheckAnswer message;
  if (const Received received = ReadMessage(answer, &message); received != Received::kWhole) {
    return received;
  }
  if (!IsPossible(message, memory_bytes)) return Received::kWrong;
  const std::vector<int64_t> counts(message.initial_counts().begin(),
                                    message.initial_counts().end());
  *check = CheckOf(std::move(message));
  for (const int64_t count : counts) {
    std::vector<float>& values = check->initial_values.emplace_back(static_cast<size_t>(count));
    if (!answer.Read(values.data(), values.size() * sizeof(float))) return Received::kCut;
  }
  return Received::kWhole;
}

// A file in memory, to be read from its begin.
absl::StatusOr<Descriptor> FileOf(const std::string& bytes) {
  Descriptor file(memfd_create("capstan-job-check", MFD_CLOEXEC));
  if (file.ok() && WriteAllAt(file.get(), 0, bytes)) return file;
  return absl::UnavailableError(
      absl::StrCat("checking a job: no file in memory: ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<JobCheck> CheckJobInChild(const JobCheckLimits& limits, const v1::JobSpec& spec,
                                         int stop) {
  const absl::Time deadline = absl::Now() + limits.time;
  JobCheckRequest request;
  *request.mutable_spec() = spec;
  request.set_memory_bytes(limits.memory_bytes);
  request.set_cpu_seconds(std::max<int64_t>(1, absl::ToInt64Seconds(limits.time)));
  if (const AllowedPaths* const allowed = Confinement(); allowed != nullptr) {
    request.set_confined(true);
    request.mutable_allow_path()->Assign(allowed->rules().begin(), allowed->rules().end());
    request.mutable_allow_path()->Add(limits.more_paths.begin(), limits.more_paths.end());
  }
  CAPSTAN_ASSIGN_OR_RETURN(const Descriptor input, FileOf(request.SerializeAsString()));
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return absl::UnavailableError(absl::StrCat("checking a job: no pipe: ", std::strerror(errno)));
  }
  const Descriptor from_child(ends[0]);
  Descriptor to_us(ends[1]);
  SpawnOptions options;
  options.program = limits.program;
  options.name = "capstan-scheduler";
  options.args = limits.args;
  options.inherits = IsHarmlessVariable;
  options.input = input.get();
  options.output = to_us.get();
  options.output_file = "/dev/null";
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<Subprocess> child, Subprocess::Spawn(options));
  close(to_us.Release());  // The child alone holds that end, so that its death ends the answer.
  Patience patience(stop, deadline);
  Answer answer(from_child.get(), &patience);
  JobCheck check;
  const Received received = ReadCheck(answer, limits.memory_bytes, &check);
  if (received == Received::kWrong) {
    return Stopped(spec, "the check of its data gave a wrong answer", "data that can be read");
  }
  patience.Await(child->pidfd());
  if (patience.given_up()) return absl::UnavailableError("checking a job: the scheduler stops");
  const std::optional<ExitStatus> end = child->Wait(deadline - absl::Now());
  if (!end.has_value()) return TookTooLong(limits, spec);
  if (received != Received::kWhole || *end != ExitStatus{}) return EndOf(limits, spec, *end);
  return check;
}

bool LimitsMemory() { return kLimitsMemory; }

int RunJobCheck() {
  JobCheckRequest request;
  if (!request.ParseFromFileDescriptor(STDIN_FILENO) || !LimitMyself(request) ||
      !ConfineMyself(request).ok()) {
    return kExitNoRequest;
  }
  const JobCheck check = CheckJob(request.spec());
  const std::string message = AnswerOf(check).SerializeAsString();
  const uint64_t bytes = message.size();
  bool written = WriteOut(&bytes, sizeof bytes) && WriteOut(message.data(), message.size());
  for (const std::vector<float>& values : check.initial_values) {
    written = written && WriteOut(values.data(), values.size() * sizeof(float));
  }
  return written ? 0 : kExitNoAnswer;
}

}  // namespace capstan::scheduler
