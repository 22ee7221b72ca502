#include "common/process/subprocess/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "common/testing/status_matchers.h"

namespace capstan::subprocess_test {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(20);

std::string TestFile(const std::string& name) {
  const char* folder = std::getenv("TEST_TMPDIR");
  return std::string(folder != nullptr ? folder : "/tmp") + "/" + name;
}

std::string Contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// /bin/sh with a script; its output goes to an empty file.
SpawnOptions Shell(const std::string& script) {
  const std::string output = TestFile("output.log");
  std::filesystem::remove(output);
  return {.program = "/bin/sh",
          .name = "",
          .args = {"-c", script},
          .environment = {},
          .output_file = output};
}

// A pipe as a file of the test's folder: opening it for reading waits for a child that writes.
std::string MakeFifo(const std::string& name) {
  const std::string path = TestFile(name);
  std::filesystem::remove(path);
  REQUIRE(std::system(("mkfifo " + path).c_str()) == 0);
  return path;
}

std::string ReadLine(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

TEST_CASE("Subprocess: the exit code is told", "[process]") {
  REQUIRE_OK_AND_ASSIGN(const auto child, Subprocess::Spawn(Shell("exit 7")));
  CHECK(child->Wait(kPatience) == ExitStatus{.code = 7, .signal = 0});
  CHECK(child->Wait(kPatience) == ExitStatus{.code = 7, .signal = 0});
}

TEST_CASE("Subprocess: the signal that ended it is told", "[process]") {
  REQUIRE_OK_AND_ASSIGN(const auto child, Subprocess::Spawn(Shell("kill -SEGV $$")));
  CHECK(child->Wait(kPatience) == ExitStatus{.code = 0, .signal = SIGSEGV});
}

TEST_CASE("Subprocess: output and errors are appended to the file", "[process]") {
  SpawnOptions options = Shell("echo out; echo err >&2");
  for (int run = 0; run < 2; ++run) {
    REQUIRE_OK_AND_ASSIGN(const auto child, Subprocess::Spawn(options));
    REQUIRE(child->Wait(kPatience) == ExitStatus{});
  }
  CHECK(Contents(options.output_file) == "out\nerr\nout\nerr\n");
}

TEST_CASE("Subprocess: input and output may be descriptors; errors go to the file", "[process]") {
  int in[2], out[2];
  REQUIRE(pipe2(in, O_CLOEXEC) == 0);
  REQUIRE(pipe2(out, O_CLOEXEC) == 0);
  REQUIRE(write(in[1], "ask\n", 4) == 4);
  close(in[1]);
  SpawnOptions options = Shell("cat; echo err >&2");
  options.input = in[0];
  options.output = out[1];
  REQUIRE_OK_AND_ASSIGN(const auto child, Subprocess::Spawn(options));
  close(in[0]);
  close(out[1]);
  REQUIRE(child->Wait(kPatience) == ExitStatus{});
  char text[16];
  CHECK(std::string(text, static_cast<size_t>(read(out[0], text, sizeof text))) == "ask\n");
  close(out[0]);
  CHECK(Contents(options.output_file) == "err\n");
}

TEST_CASE("Subprocess: a child inherits the variables that it may", "[process]") {
  setenv("CAPSTAN_TEST_KEPT", "kept", 1);
  setenv("CAPSTAN_TEST_SECRET", "hidden", 1);
  SpawnOptions options = Shell("echo $CAPSTAN_TEST_KEPT $CAPSTAN_TEST_SECRET");
  options.inherits = [](absl::string_view name) { return name != "CAPSTAN_TEST_SECRET"; };
  REQUIRE_OK_AND_ASSIGN(const auto child, Subprocess::Spawn(options));
  REQUIRE(child->Wait(kPatience) == ExitStatus{});
  CHECK(Contents(options.output_file) == "kept\n");
}

TEST_CASE("Subprocess: additions to the environment win, the rest is inherited", "[process]") {
  setenv("CAPSTAN_TEST_KEPT", "kept", 1);
  setenv("CAPSTAN_TEST_CHANGED", "old", 1);
  SpawnOptions options = Shell("echo $CAPSTAN_TEST_KEPT $CAPSTAN_TEST_CHANGED $CAPSTAN_TEST_NEW");
  options.environment = {{"CAPSTAN_TEST_CHANGED", "changed"}, {"CAPSTAN_TEST_NEW", "a b"}};
  REQUIRE_OK_AND_ASSIGN(const auto child, Subprocess::Spawn(options));
  REQUIRE(child->Wait(kPatience) == ExitStatus{});
  CHECK(Contents(options.output_file) == "kept changed a b\n");
}

TEST_CASE("Subprocess: of several additions with one name the last one counts", "[process]") {
  SpawnOptions options = Shell("");
  options.program = "/usr/bin/env";  // A shell would itself drop all but one.
  options.args = {};
  options.inherits = [](absl::string_view) { return false; };
  options.environment = {{"A", "1"}, {"B", "2"}, {"A", "3"}};
  REQUIRE_OK_AND_ASSIGN(const auto child, Subprocess::Spawn(options));
  REQUIRE(child->Wait(kPatience) == ExitStatus{});
  CHECK(Contents(options.output_file) == "B=2\nA=3\n");
}

TEST_CASE("Subprocess: signals blocked here are not blocked in the child", "[process]") {
  sigset_t term, before;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &term, &before);
  REQUIRE_OK_AND_ASSIGN(const auto child, Subprocess::Spawn(Shell("kill -TERM $$; exit 3")));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  CHECK(child->Wait(kPatience) == ExitStatus{.code = 0, .signal = SIGTERM});
}

TEST_CASE("Subprocess: files open here are not open in the child", "[process]") {
  const int leaked = dup(STDERR_FILENO);  // It lacks O_CLOEXEC.
  REQUIRE_OK_AND_ASSIGN(const auto child, Subprocess::Spawn(Shell("test ! -e /proc/$$/fd/" +
                                                                  std::to_string(leaked))));
  CHECK(child->Wait(kPatience) == ExitStatus{});
  close(leaked);
}

TEST_CASE("Subprocess: Wait gives up after its timeout, and again later", "[process]") {
  const std::string fifo = MakeFifo("hold.fifo");
  REQUIRE_OK_AND_ASSIGN(const auto child, Subprocess::Spawn(Shell("read line < " + fifo)));
  CHECK_FALSE(child->Wait(absl::ZeroDuration()).has_value());
  CHECK_FALSE(child->Wait(absl::Milliseconds(5)).has_value());
  std::ofstream(fifo) << "go\n";
  CHECK(child->Wait(kPatience) == ExitStatus{});
}

TEST_CASE("Subprocess: Terminate lets a willing child end by itself", "[process]") {
  const std::string fifo = MakeFifo("ready.fifo");
  REQUIRE_OK_AND_ASSIGN(const auto child,
                        Subprocess::Spawn(Shell("trap 'exit 5' TERM; echo ready > " + fifo +
                                                "; while :; do :; done")));
  REQUIRE(ReadLine(fifo) == "ready");
  CHECK(child->Terminate(kPatience) == ExitStatus{.code = 5, .signal = 0});
}

TEST_CASE("Subprocess: Terminate kills a child that does not listen", "[process]") {
  const std::string fifo = MakeFifo("ready.fifo");
  REQUIRE_OK_AND_ASSIGN(const auto child, Subprocess::Spawn(Shell("trap '' TERM; echo ready > " +
                                                                  fifo + "; while :; do :; done")));
  REQUIRE(ReadLine(fifo) == "ready");
  CHECK(child->Terminate(absl::Milliseconds(20)) == ExitStatus{.code = 0, .signal = SIGKILL});
}

// Waits for the end of a process that is not this one's child.
bool Ends(pid_t pid) {
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (pidfd < 0) return true;
  pollfd waiter{.fd = pidfd, .events = POLLIN, .revents = 0};
  const int ready = poll(&waiter, 1, static_cast<int>(absl::ToInt64Milliseconds(kPatience)));
  close(pidfd);
  return ready == 1;
}

TEST_CASE("Subprocess: what a child leaves behind in its group is killed", "[process]") {
  const std::string fifo = MakeFifo("grandchild.fifo");
  REQUIRE_OK_AND_ASSIGN(const auto child,
                        Subprocess::Spawn(Shell("sleep 1000 & echo $! > " + fifo)));
  const pid_t grandchild = std::stoi(ReadLine(fifo));
  CHECK(child->Wait(kPatience) == ExitStatus{});
  CHECK(Ends(grandchild));
}

TEST_CASE("Subprocess: a child ends with the thread that spawned it", "[process]") {
  absl::StatusOr<std::unique_ptr<Subprocess>> child = absl::UnknownError("not spawned");
  std::thread parent([&] { child = Subprocess::Spawn(Shell("exec sleep 1000")); });
  parent.join();
  REQUIRE_OK(child);
  CHECK((*child)->Wait(kPatience) == ExitStatus{.code = 0, .signal = SIGKILL});
}

TEST_CASE("Subprocess: the destructor leaves no process behind", "[process]") {
  pid_t pid = 0;
  {
    REQUIRE_OK_AND_ASSIGN(const auto child, Subprocess::Spawn(Shell("exec sleep 1000")));
    pid = child->pid();
  }
  CHECK(kill(pid, 0) != 0);
}

TEST_CASE("Subprocess: what cannot be started is named", "[process]") {
  SpawnOptions options = Shell("");
  options.program = "/proc/none/program";
  CHECK_STATUS(Subprocess::Spawn(options), absl::StatusCode::kNotFound,
               "/proc/none/program: No such");
  options.program = "/etc/passwd";
  CHECK_STATUS(Subprocess::Spawn(options), absl::StatusCode::kUnavailable,
               "/etc/passwd: Permission denied");
  options = Shell("");
  options.output_file = "/proc/none/output";
  CHECK_STATUS(Subprocess::Spawn(options), absl::StatusCode::kNotFound, "/proc/none/output");
}

}  // namespace
}  // namespace capstan::subprocess_test
