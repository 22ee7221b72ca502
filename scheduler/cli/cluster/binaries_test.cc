#include "scheduler/cli/cluster/binaries.h"

#include <catch2/catch.hpp>
#include <set>

#include "absl/status/status.h"
#include "common/testing/status_matchers.h"

namespace capstan::cli::binaries_test {
namespace {

absl::StatusOr<Binaries> FindAmong(const std::set<std::string>& files) {
  return FindBinaries(
      {.self = "/out/scheduler/cli/capstan",
       .working_directory = "/tree",
       .path = "/usr/bin:/bin",
       .is_executable = [&](const std::string& path) { return files.count(path) > 0; }});
}

TEST_CASE("FindBinaries: beside the program, in Bazel's output, in the tree, in PATH", "[cli]") {
  REQUIRE_OK_AND_ASSIGN(
      Binaries found,
      FindAmong({"/out/scheduler/cli/capstan-scheduler", "/out/server/capstan-server",
                 "/tree/bazel-bin/worker/capstan-worker", "/bin/capstan-worker"}));
  CHECK(found.scheduler == "/out/scheduler/cli/capstan-scheduler");
  CHECK(found.server == "/out/server/capstan-server");
  CHECK(found.worker == "/tree/bazel-bin/worker/capstan-worker");
  REQUIRE_OK_AND_ASSIGN(found, FindAmong({"/bin/capstan-scheduler", "/usr/bin/capstan-server",
                                          "/bin/capstan-server", "/bin/capstan-worker"}));
  CHECK(found.scheduler == "/bin/capstan-scheduler");
  CHECK(found.server == "/usr/bin/capstan-server");
}

TEST_CASE("FindBinaries: a program that is nowhere is named with the places tried", "[cli]") {
  CHECK_STATUS(FindAmong({"/bin/capstan-scheduler", "/bin/capstan-worker"}),
               absl::StatusCode::kNotFound,
               "the program capstan-server was not found; tried /out/scheduler/cli/capstan-server, "
               "/out/server/capstan-server, /tree/bazel-bin/server/capstan-server, "
               "/usr/bin/capstan-server, /bin/capstan-server. Build it: bazel build "
               "//server:capstan-server");
}

}  // namespace
}  // namespace capstan::cli::binaries_test
