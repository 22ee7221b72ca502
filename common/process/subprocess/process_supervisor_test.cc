#include "common/process/subprocess/process_supervisor.h"

#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <map>
#include <string>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/testing/status_matchers.h"

namespace capstan::process_supervisor_test {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(20);

// Collects the ends that the supervisor reports, for tests to wait for.
class Ends {
 public:
  ProcessSupervisor::OnEnd Recorder() {
    return [this](uint64_t id, const absl::StatusOr<ExitStatus>& end) {
      absl::MutexLock lock(&mutex_);
      ends_.emplace(id, end);
      ++count_;
    };
  }
  absl::StatusOr<ExitStatus> WaitFor(uint64_t id) {
    absl::MutexLock lock(&mutex_);
    const auto there = [&] { return ends_.count(id) > 0; };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&there), kPatience)) {
      return absl::DeadlineExceededError("no end reported");
    }
    return ends_.at(id);
  }
  int count() {
    absl::MutexLock lock(&mutex_);
    return count_;
  }

 private:
  absl::Mutex mutex_;
  std::map<uint64_t, absl::StatusOr<ExitStatus>> ends_;
  int count_ = 0;
};

SpawnOptions Shell(const std::string& script) {
  return {.program = "/bin/sh",
          .name = "",
          .args = {"-c", script},
          .environment = {},
          .output_file = "/dev/null"};
}

constexpr char kForever[] = "exec sleep 1000";

TEST_CASE("ProcessSupervisor: each process's end is reported with its code", "[process]") {
  Ends ends;
  ProcessSupervisor supervisor(ends.Recorder());
  REQUIRE_OK(supervisor.Start());
  for (int code = 0; code < 5; ++code) {
    supervisor.Spawn(static_cast<uint64_t>(code), Shell("exit " + std::to_string(code)));
  }
  for (int code = 0; code < 5; ++code) {
    REQUIRE_OK_AND_ASSIGN(const ExitStatus end, ends.WaitFor(static_cast<uint64_t>(code)));
    CHECK(end == ExitStatus{.code = code, .signal = 0});
  }
}

TEST_CASE("ProcessSupervisor: a process that cannot start is reported with the cause",
          "[process]") {
  Ends ends;
  ProcessSupervisor supervisor(ends.Recorder());
  REQUIRE_OK(supervisor.Start());
  SpawnOptions options = Shell("");
  options.program = "/proc/none/program";
  supervisor.Spawn(1, options);
  CHECK_STATUS(ends.WaitFor(1), absl::StatusCode::kNotFound, "/proc/none/program");
}

TEST_CASE("ProcessSupervisor: Terminate ends the process it names and no other", "[process]") {
  Ends ends;
  ProcessSupervisor supervisor(ends.Recorder());
  REQUIRE_OK(supervisor.Start());
  supervisor.Spawn(1, Shell(kForever));
  supervisor.Spawn(2, Shell(kForever));
  supervisor.Terminate(1, kPatience);
  REQUIRE_OK_AND_ASSIGN(const ExitStatus end, ends.WaitFor(1));
  CHECK(end == ExitStatus{.code = 0, .signal = SIGTERM});
  CHECK(ends.count() == 1);
}

TEST_CASE("ProcessSupervisor: who ignores SIGTERM is killed after the grace", "[process]") {
  Ends ends;
  ProcessSupervisor supervisor(ends.Recorder());
  REQUIRE_OK(supervisor.Start());
  supervisor.Spawn(1, Shell("trap '' TERM; kill -STOP $$; while :; do :; done"));
  supervisor.Terminate(1, absl::Milliseconds(20));
  REQUIRE_OK_AND_ASSIGN(const ExitStatus end, ends.WaitFor(1));
  CHECK(end.signal != 0);
}

TEST_CASE("ProcessSupervisor: a shorter grace replaces a longer one", "[process]") {
  Ends ends;
  ProcessSupervisor supervisor(ends.Recorder());
  REQUIRE_OK(supervisor.Start());
  supervisor.Spawn(1, Shell("trap '' TERM; while :; do :; done"));
  supervisor.Terminate(1, absl::Hours(1));
  supervisor.Terminate(1, absl::ZeroDuration());
  REQUIRE_OK_AND_ASSIGN(const ExitStatus end, ends.WaitFor(1));
  CHECK(end.signal != 0);
}

TEST_CASE("ProcessSupervisor: Stop ends all processes and reports each once", "[process]") {
  Ends ends;
  ProcessSupervisor supervisor(ends.Recorder());
  REQUIRE_OK(supervisor.Start());
  for (uint64_t id = 0; id < 3; ++id) supervisor.Spawn(id, Shell(kForever));
  supervisor.Stop(kPatience);
  CHECK(ends.count() == 3);
  supervisor.Stop(kPatience);
  CHECK(ends.count() == 3);
}

TEST_CASE("ProcessSupervisor: the end of one process may start another", "[process]") {
  Ends ends;
  ProcessSupervisor* self = nullptr;
  const auto record = ends.Recorder();
  ProcessSupervisor supervisor([&](uint64_t id, const absl::StatusOr<ExitStatus>& end) {
    if (id == 1) self->Spawn(2, Shell("exit 9"));
    record(id, end);
  });
  self = &supervisor;
  REQUIRE_OK(supervisor.Start());
  supervisor.Spawn(1, Shell("exit 8"));
  REQUIRE_OK_AND_ASSIGN(const ExitStatus end, ends.WaitFor(2));
  CHECK(end.code == 9);
}

}  // namespace
}  // namespace capstan::process_supervisor_test
