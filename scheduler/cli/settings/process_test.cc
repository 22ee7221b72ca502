#include "scheduler/cli/settings/process.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"

namespace capstan::cli::process_test {
namespace {

constexpr absl::Duration kLimit = absl::Seconds(30);

std::string Scratch(const std::string& name) {
  return absl::StrCat(std::getenv("TEST_TMPDIR"), "/", name);
}

std::string Read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

ProcessId Shell(const std::string& script, const std::string& output) {
  REQUIRE_OK_AND_ASSIGN(const ProcessId id, StartInBackground({.program = "/bin/sh",
                                                               .args = {"-c", script},
                                                               .directory = "/",
                                                               .output_file = output,
                                                               .death_signal = SIGTERM}));
  return id;
}

void Reap(const ProcessId& id) { waitpid(id.pid, nullptr, 0); }

TEST_CASE("Process: output and end of a program are seen", "[cli]") {
  const std::string output = Scratch("output");
  const ProcessId id = Shell("pwd; echo problem >&2; exit 3", output);
  REQUIRE(AwaitEnd({id}, kLimit));
  CHECK_FALSE(IsAlive(id));  // The process is still a zombie.
  CHECK(HowItEnded(id) == "exit code 3");
  Reap(id);
  CHECK(Read(output) == "/\nproblem\n");
}

TEST_CASE("Process: a signal ends it and is told", "[cli]") {
  const ProcessId id = Shell("exec sleep 1000", Scratch("signal"));
  CHECK(IsAlive(id));
  CHECK(HowItEnded(id) == "");
  CHECK_FALSE(AwaitEnd({id}, absl::Milliseconds(1)));
  SendSignal(id, SIGTERM);
  REQUIRE(AwaitEnd({id}, kLimit));
  CHECK_THAT(HowItEnded(id), Catch::StartsWith("signal 15 ("));
  Reap(id);
}

TEST_CASE("Process: a pid that was given to another process is left alone", "[cli]") {
  const ProcessId id = Shell("exec sleep 1000", Scratch("reuse"));
  const ProcessId earlier = {id.pid, id.start_time - 1};
  CHECK_FALSE(IsAlive(earlier));
  SendSignal(earlier, SIGKILL);
  CHECK_FALSE(KillSession(earlier));
  CHECK(IsAlive(id));
  SendSignal(id, SIGKILL);
  REQUIRE(AwaitEnd({id}, kLimit));
  Reap(id);
}

TEST_CASE("Process: what a dead leader left behind is killed with its session", "[cli]") {
  const std::string output = Scratch("session");
  const ProcessId leader = Shell("sleep 1000 & echo $!", output);
  REQUIRE(AwaitEnd({leader}, kLimit));
  const int child = std::atoi(Read(output).c_str());
  REQUIRE(kill(child, 0) == 0);
  CHECK(KillSession(leader));
  Reap(leader);
}

TEST_CASE("Process: a program that cannot be started is named", "[cli]") {
  SpawnOptions options{.program = "/no/such", .directory = "/", .output_file = Scratch("none")};
  CHECK_STATUS(StartInBackground(options), absl::StatusCode::kNotFound, "/no/such in /: No such");
  options.output_file = "/no/such/log";
  CHECK_STATUS(StartInBackground(options), absl::StatusCode::kNotFound, "output file /no/such/log");
  options = {.program = "/bin/true", .directory = "/no/such", .output_file = Scratch("none")};
  CHECK_STATUS(StartInBackground(options), absl::StatusCode::kNotFound, "in /no/such: No such");
}

}  // namespace
}  // namespace capstan::cli::process_test
