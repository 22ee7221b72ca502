#include "common/net/node/daemon.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "common/command_line/command.h"
#include "common/net/socket/host_port.h"
#include "common/testing/status_matchers.h"

namespace capstan::daemon_test {
namespace {

std::string TestFile(const std::string& name) {
  const char* folder = std::getenv("TEST_TMPDIR");
  return std::string(folder != nullptr ? folder : "/tmp") + "/" + name;
}

struct Parsed {
  std::optional<int> exit_code;
  DaemonFlags flags;
  std::string scheduler;
};

// Parses as a daemon does that needs a scheduler.
Parsed Parse(std::vector<const char*> arguments) {
  Parsed parsed;
  Program program("a test daemon");
  AddDaemonFlags(program, "capstan-test", &parsed.flags);
  AddSchedulerFlag(program, &parsed.scheduler);
  arguments.insert(arguments.begin(), "capstan-test");
  parsed.exit_code = program.Parse(static_cast<int>(arguments.size()), arguments.data());
  return parsed;
}

TEST_CASE("Daemon: the audit log is in its folder, where a flag says, or nowhere", "[net]") {
  const std::string folder = TestFile("audited");
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  const auto files_with = [&folder](const std::vector<const char*>& arguments) {
    DaemonFlags flags = Parse(arguments).flags;
    if (!flags.audit_log.empty() && flags.audit_log != "off") {
      flags.audit_log = folder + "/" + flags.audit_log;
    }
    REQUIRE_OK(OpenAuditLog(flags, folder, MakeAuditLog(flags, "server-1").get()));
    std::vector<std::string> files;
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      files.push_back(file.path().filename().string());
    }
    return files;
  };
  const char* const scheduler = "--scheduler=localhost:7070";
  CHECK(files_with({scheduler, "--audit-log=off"}).empty());
  CHECK(files_with({scheduler, "--audit-log=mine"}) == std::vector<std::string>{"mine"});
  std::filesystem::remove(folder + "/mine");
  CHECK(files_with({scheduler}) == std::vector<std::string>{"audit.jsonl"});
  const Parsed parsed = Parse({scheduler, "--audit-log-mb=7", "--audit-log-files=3"});
  CHECK(parsed.flags.audit_log_mb == 7);
  CHECK(parsed.flags.audit_log_files == 3);
  CHECK(Parse({scheduler, "--audit-log-mb=0"}).exit_code == 2);
}

std::string WriteConfig(const std::string& text) {
  const std::string path = TestFile("daemon.toml");
  std::ofstream(path) << text;
  return "--config=" + path;
}

constexpr char kScheduler[] = "--scheduler=127.0.0.1:7070";

TEST_CASE("Daemon flags: defaults are a free port on loopback and text logs", "[daemon]") {
  const Parsed parsed = Parse({kScheduler});
  CHECK_FALSE(parsed.exit_code.has_value());
  CHECK(parsed.flags.listen == "127.0.0.1:0");
  CHECK(parsed.flags.log_format == "text");
  CHECK_FALSE(parsed.flags.reflection);
}

TEST_CASE("Daemon flags: --help and --version end with 0, a usage error with 2", "[daemon]") {
  CHECK(Parse({"--help"}).exit_code == 0);
  CHECK(Parse({"--version"}).exit_code == 0);
  CHECK(Parse({kScheduler, "--no-such-flag"}).exit_code == 2);
  CHECK(Parse({kScheduler, "--log-format=xml"}).exit_code == 2);
  CHECK(Parse({kScheduler, "--listen=nowhere"}).exit_code == 2);
}

TEST_CASE("Daemon flags: a config file sets flags and is checked", "[daemon]") {
  const std::string good = WriteConfig("listen = \"0.0.0.0:7070\"\nreflection = true\n");
  const Parsed parsed = Parse({kScheduler, good.c_str()});
  CHECK_FALSE(parsed.exit_code.has_value());
  CHECK(parsed.flags.listen == "0.0.0.0:7070");
  CHECK(parsed.flags.reflection);

  const std::string unknown = WriteConfig("no_such_flag = 1\n");
  CHECK(Parse({kScheduler, unknown.c_str()}).exit_code == 2);
  const std::string secret = WriteConfig("c2VjcmV0\n");
  std::ostringstream told;
  std::streambuf* const before = std::cerr.rdbuf(told.rdbuf());
  CHECK(Parse({kScheduler, secret.c_str()}).exit_code == 2);
  std::cerr.rdbuf(before);
  CHECK(told.str().find("names no flag") != std::string::npos);
  CHECK(told.str().find("c2VjcmV0") == std::string::npos);
  CHECK(Parse({kScheduler, "--config=/proc/none.toml"}).exit_code == 2);
}

TEST_CASE("Daemon flags: flag wins over environment, environment over file", "[daemon]") {
  unsetenv("CAPSTAN_SCHEDULER");
  const std::string config = WriteConfig("scheduler = \"from-file:1\"\n");
  CHECK(Parse({config.c_str()}).scheduler == "from-file:1");
  setenv("CAPSTAN_SCHEDULER", "from-environment:1", 1);
  CHECK(Parse({config.c_str()}).scheduler == "from-environment:1");
  CHECK(Parse({config.c_str(), "--scheduler=from-flag:1"}).scheduler == "from-flag:1");
  unsetenv("CAPSTAN_SCHEDULER");
}

TEST_CASE("Daemon flags: a scheduler is required, with a port", "[daemon]") {
  CHECK(Parse({}).exit_code == 2);
  CHECK(Parse({"--scheduler=node-1"}).exit_code == 2);
  CHECK(Parse({"--scheduler=node-1:0"}).exit_code == 2);
  CHECK_FALSE(Parse({"--scheduler=node-1:7070"}).exit_code.has_value());
}

TEST_CASE("Daemon flags: peers are told the advertised address, or where the daemon listens",
          "[daemon]") {
  DaemonFlags flags;
  CHECK(PeerAddress(flags, "10.1.2.3:7071") == "10.1.2.3:7071");
  CHECK(PeerAddress(flags, "0.0.0.0:7071") == LocalHostname() + ":7071");
  flags.advertise = "node-1.example";
  CHECK(PeerAddress(flags, "0.0.0.0:7071") == "node-1.example:7071");
  flags.advertise = "gateway:80";
  CHECK(PeerAddress(flags, "0.0.0.0:7071") == "gateway:80");
  flags.advertise = "[fe80::1]";
  CHECK(PeerAddress(flags, "0.0.0.0:7071") == "[fe80::1]:7071");
}

TEST_CASE("Daemon flags: an advertised address that cannot be is refused", "[daemon]") {
  for (const char* text : {"--advertise=host:99999", "--advertise=:7071", "--advertise="}) {
    CAPTURE(text);
    DaemonFlags flags;
    Program program("a test daemon");
    AddAdvertiseFlag(program, &flags);
    const char* const arguments[] = {"capstan-test", text};
    CHECK(program.Parse(2, arguments) == 2);
  }
}

TEST_CASE("Port file: holds the address, replaces an old one, leaves nothing beside it",
          "[daemon]") {
  const std::string folder = TestFile("port_file");
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const std::string path = folder + "/port";
  REQUIRE_OK(WritePortFile(path, "127.0.0.1:1"));
  REQUIRE_OK(WritePortFile(path, "127.0.0.1:4242"));
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  CHECK(text.str() == "127.0.0.1:4242\n");
  const std::filesystem::directory_iterator files(folder);
  CHECK(std::distance(begin(files), end(files)) == 1);
}

TEST_CASE("Port file: it may lie where the files of jobs may not", "[daemon]") {
  const std::string folder = TestFile("port_file_of_a_confined_process");
  std::filesystem::create_directories(folder);
  const pid_t child = fork();
  if (child == 0) {
    const bool confined = ConfineDaemon({}, "").ok();
    _exit(confined && WritePortFile(folder + "/port", "127.0.0.1:1").ok() ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(std::filesystem::exists(folder + "/port"));
}

TEST_CASE("Port file: a folder that does not exist is named", "[daemon]") {
  CHECK_STATUS(WritePortFile("/proc/none/port", "127.0.0.1:1"), absl::StatusCode::kUnavailable,
               "/proc/none/port: No such file");
}

TEST_CASE("Signals: each way to ask for the end is seen by the waiting thread", "[daemon]") {
  BlockSignals();
  CHECK_FALSE(WaitForShutdownSignal(absl::ZeroDuration()).has_value());
  kill(getpid(), SIGINT);
  CHECK(WaitForShutdownSignal(absl::Seconds(20)) == SIGINT);
  std::thread requester(RequestShutdown);
  CHECK(WaitForShutdownSignal(absl::InfiniteDuration()) == SIGTERM);
  requester.join();
  raise(SIGPIPE);  // Ignored: a peer that hangs up ends no daemon.
}

}  // namespace
}  // namespace capstan::daemon_test
