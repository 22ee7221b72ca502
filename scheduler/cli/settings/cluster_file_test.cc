#include "scheduler/cli/settings/cluster_file.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"

namespace capstan::cli::cluster_file_test {
namespace {

std::string Folder(const std::string& name) {
  const std::string folder = absl::StrCat(std::getenv("TEST_TMPDIR"), "/", name);
  std::filesystem::create_directories(folder);
  return folder;
}

TEST_CASE("ClusterFile: what is written is read back, and removed without a trace", "[cli]") {
  const std::string folder = Folder("round");
  ClusterFile cluster;
  cluster.set_scheduler("127.0.0.1:5");
  LocalProcess* process = cluster.add_processes();
  process->set_name("scheduler");
  process->set_pid(1234567);
  process->set_start_time(99);
  REQUIRE_OK(WriteClusterFile(folder, cluster));
  REQUIRE_OK_AND_ASSIGN(const ClusterFile read, ReadClusterFile(folder));
  CHECK(read.scheduler() == "127.0.0.1:5");
  CHECK(read.processes(0).start_time() == 99);
  CHECK_FALSE(RunningCluster(folder).has_value());  // There is no such process.
  REQUIRE_OK(RemoveClusterFile(folder));
  CHECK(std::filesystem::is_empty(folder));
  REQUIRE_OK(RemoveClusterFile(folder));
  CHECK_STATUS(ReadClusterFile(folder), absl::StatusCode::kNotFound, "cluster.json: no local");
}

TEST_CASE("ClusterFile: contents that cannot be trusted are refused", "[cli]") {
  const std::string folder = Folder("bad");
  const auto write = [&](const std::string& text) {
    std::ofstream(ClusterFilePath(folder)) << text;
  };
  write("nonsense");
  CHECK_STATUS(ReadClusterFile(folder), absl::StatusCode::kDataLoss, "cluster.json: ");
  write("{\"format\": 7}");
  CHECK_STATUS(ReadClusterFile(folder), absl::StatusCode::kDataLoss,
               "got format 7, expected 1; was it written by another version?");
  for (const char* pid : {"-1", "0", "1"}) {
    write(absl::StrCat("{\"format\": 1, \"processes\": [{\"name\": \"x\", \"pid\": ", pid, "}]}"));
    CHECK_STATUS(ReadClusterFile(folder), absl::StatusCode::kDataLoss,
                 absl::StrCat("x has pid ", pid, ", expected above 1"));
  }
}

}  // namespace
}  // namespace capstan::cli::cluster_file_test
