#include "common/net/testing/daemon_process.h"

#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <utility>

#include "absl/time/clock.h"
#include "common/net/testing/fake_scheduler.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"

namespace capstan::testing {

DaemonProcess::DaemonProcess(const std::string& program, const std::string& scheduler,
                             const std::vector<std::string>& flags)
    : folder_(TestPath(std::filesystem::path(program).filename().string())) {
  std::filesystem::remove_all(folder_);
  std::filesystem::create_directories(folder_);
  SpawnOptions options;
  options.program = program;
  options.args = {"--scheduler=" + scheduler, "--port-file=" + Path("port")};
  options.args.insert(options.args.end(), flags.begin(), flags.end());
  options.output_file = Path("log");
  auto spawned = Subprocess::Spawn(options);
  REQUIRE_OK(spawned);
  process_ = *std::move(spawned);
}

std::string DaemonProcess::log() const { return ReadFile(Path("log")); }

std::string DaemonProcess::port_file() const { return ReadFile(Path("port")); }

std::string DaemonProcess::Path(const std::string& name) const { return folder_ + "/" + name; }

void DaemonProcess::WaitForLog(const std::string& text) const {
  const absl::Time give_up = absl::Now() + kProcessPatience;
  while (log().find(text) == std::string::npos) {
    INFO(log());
    REQUIRE(absl::Now() < give_up);
  }
}

void CheckSaysGoodBye(const std::string& program, int signal) {
  FakeScheduler scheduler;
  const DaemonProcess daemon(program, scheduler.address());
  REQUIRE(scheduler.WaitUntilHeld());
  daemon->Signal(signal);
  CHECK(daemon->Wait(kProcessPatience) == ExitStatus{});
  INFO(daemon.log());
  CHECK(scheduler.WaitForSync([](const v1::SyncNodeRequest& sync) { return sync.leaving(); })
            .has_value());
}

void CheckRefusedByScheduler(const std::string& program) {
  FakeScheduler scheduler;
  scheduler.FailRegister({absl::FailedPreconditionError("protocol version 1, expected 2")});
  const DaemonProcess daemon(program, scheduler.address());
  CHECK(daemon->Wait(kProcessPatience) == ExitStatus{.code = 1, .signal = 0});
  CHECK_THAT(daemon.log(), Catch::Contains("protocol version 1, expected 2"));
}

void CheckPortInUse(const std::string& program) {
  FakeScheduler scheduler;
  const DaemonProcess daemon(program, scheduler.address(), {"--listen=" + scheduler.address()});
  CHECK(daemon->Wait(kProcessPatience) == ExitStatus{.code = 1, .signal = 0});
  CHECK_THAT(daemon.log(), Catch::Contains(scheduler.address() + ": the port is in use"));
}

void CheckStopsWithoutScheduler(const std::string& program, const std::vector<std::string>& flags) {
  const DaemonProcess daemon(program, "127.0.0.1:1", flags);
  daemon.WaitForLog("no answer from the scheduler at 127.0.0.1:1");
  daemon->Signal(SIGTERM);
  CHECK(daemon->Wait(kProcessPatience) == ExitStatus{});
}

}  // namespace capstan::testing
