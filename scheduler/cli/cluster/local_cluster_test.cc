#include "scheduler/cli/cluster/local_cluster.h"

#include <signal.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "scheduler/cli/console/interrupts.h"
#include "scheduler/cli/settings/cluster_file.h"
#include "scheduler/cli/settings/process.h"

namespace capstan::cli::local_cluster_test {
namespace {

// A folder with shell scripts that take the place of daemons.
class Scene {
 public:
  explicit Scene(const std::string& name)
      : folder_(absl::StrCat(std::getenv("TEST_TMPDIR"), "/", name)) {
    std::filesystem::create_directories(folder_);
    options_.directory = folder_ + "/run";
    options_.end_with_parent = true;
    options_.start_limit = absl::Seconds(20);
  }

  // Makes a script that sets $f to the port file and runs `then`.
  std::string Daemon(const std::string& name, const std::string& then) {
    const std::string path = absl::StrCat(folder_, "/", name);
    std::ofstream(path) << "#!/bin/sh\n"
                           "for a in \"$@\"; do case \"$a\" in --port-file=*) f=${a#*=};; esac; "
                           "done\n"
                        << then << "\n";
    chmod(path.c_str(), 0755);
    return path;
  }

  LocalClusterOptions& options() { return options_; }

 private:
  std::string folder_;
  LocalClusterOptions options_;
};

constexpr char kListen[] = "echo 127.0.0.1:1 > $f\n";

TEST_CASE("StartLocalCluster: a daemon that ends at once is named with the end of its log",
          "[cli]") {
  const Interrupts interrupts;
  Scene scene("ends");
  scene.options().binaries.scheduler = scene.Daemon("scheduler", "echo port in use; exit 4");
  const auto cluster = StartLocalCluster(scene.options());
  CHECK_STATUS(cluster, absl::StatusCode::kAborted,
               "scheduler ended while the cluster was starting with exit code 4. The end of its "
               "log ");
  CHECK_THAT(std::string(cluster.status().message()), Catch::EndsWith(":\nport in use\n"));
  CHECK_FALSE(std::filesystem::exists(ClusterFilePath(scene.options().directory)));
}

TEST_CASE("StartLocalCluster: when one daemon fails the others are taken down", "[cli]") {
  const Interrupts interrupts;
  Scene scene("takes-down");
  const std::string pid_file = scene.options().directory + "/scheduler.pid";
  scene.options().binaries.scheduler = scene.Daemon(
      "scheduler", absl::StrCat("echo $$ > ", pid_file, "\n", kListen, "exec sleep 1000"));
  scene.options().binaries.server = scene.Daemon("server", "exit 1");
  scene.options().binaries.worker = scene.Daemon("worker", "exec sleep 1000");
  CHECK_STATUS(StartLocalCluster(scene.options()), absl::StatusCode::kAborted,
               "ended while the cluster was starting with exit code 1");
  int pid = 0;
  std::ifstream(pid_file) >> pid;
  REQUIRE(pid > 1);
  CHECK(kill(pid, 0) != 0);
}

TEST_CASE("StartLocalCluster: daemons that never listen are named at the deadline", "[cli]") {
  const Interrupts interrupts;
  Scene scene("never");
  scene.options().start_limit = absl::Milliseconds(50);
  scene.options().binaries.scheduler = scene.Daemon("scheduler", "exec sleep 1000");
  CHECK_STATUS(StartLocalCluster(scene.options()), absl::StatusCode::kDeadlineExceeded,
               "after 50 ms these had not begun to listen: scheduler");
}

TEST_CASE("StopLocalCluster: what ignores SIGTERM is killed, and the file removed", "[cli]") {
  Scene scene("stubborn");
  const std::string& directory = scene.options().directory;
  std::filesystem::create_directories(directory);
  ClusterFile cluster;
  std::vector<ProcessId> ids;
  for (const char* name : {"scheduler", "server-1", "worker-1"}) {
    const bool stubborn = std::string(name) == "server-1";
    const std::string script =
        stubborn ? "trap '' TERM; echo ready; while :; do sleep 1000; done" : "exec sleep 1000";
    const std::string log = absl::StrCat(directory, "/", name);
    REQUIRE_OK_AND_ASSIGN(const ProcessId id, StartInBackground({.program = "/bin/sh",
                                                                 .args = {"-c", script},
                                                                 .directory = "/",
                                                                 .output_file = log,
                                                                 .death_signal = SIGTERM}));
    while (stubborn && std::filesystem::file_size(log) == 0) {  // Wait until the trap is set.
      AwaitEnd({id}, absl::Milliseconds(5));
    }
    LocalProcess* process = cluster.add_processes();
    process->set_name(name);
    process->set_pid(id.pid);
    process->set_start_time(id.start_time);
    ids.push_back(id);
  }
  REQUIRE_OK(WriteClusterFile(directory, cluster));
  CHECK(RunningCluster(directory).has_value());
  CHECK_STATUS(StartLocalCluster(scene.options()), absl::StatusCode::kAlreadyExists,
               "a cluster runs in ");
  CHECK(DeadProcesses(cluster).empty());

  REQUIRE_OK_AND_ASSIGN(const StopReport report, StopLocalCluster(directory, absl::Seconds(1)));
  CHECK_THAT(report.killed, Catch::VectorContains(std::string("server-1")));
  for (const ProcessId& id : ids) CHECK_FALSE(IsAlive(id));
  CHECK(DeadProcesses(cluster).size() == 3);
  CHECK_STATUS(StopLocalCluster(directory, absl::Seconds(1)), absl::StatusCode::kNotFound,
               "no local cluster is written down");
}

}  // namespace
}  // namespace capstan::cli::local_cluster_test
