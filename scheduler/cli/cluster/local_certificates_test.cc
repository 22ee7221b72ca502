#include "scheduler/cli/cluster/local_certificates.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "absl/time/clock.h"
#include "common/security/certificates/tls_folder.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"

namespace capstan::cli::local_certificates_test {
namespace {

TEST_CASE("Local certificates: one for each daemon and one for the user, which nobody else reads",
          "[cli][security]") {
  const std::string directory = testing::TestPath("cluster");
  std::filesystem::create_directories(directory);
  REQUIRE_OK(MakeLocalCertificates(directory, 2, 1));
  const auto identity = [&](const std::string& name) {
    const auto folder = TlsFolder::Read(LocalTlsFolder(directory, name), absl::Now());
    REQUIRE_OK(folder);
    return FormatIdentity(folder->facts.identity);
  };
  CHECK(identity("scheduler") == "capstan://local/scheduler");
  CHECK(identity("server-2") == "capstan://local/server/server-2");
  CHECK(identity("worker-1") == "capstan://local/worker/worker-1");
  CHECK(identity("user") == "capstan://local/admin/user");
  struct stat facts {};
  REQUIRE(stat((directory + "/tls").c_str(), &facts) == 0);
  CHECK((facts.st_mode & 0777) == 0700);
  REQUIRE(stat((directory + "/tls/user/key.pem").c_str(), &facts) == 0);
  CHECK((facts.st_mode & 0777) == 0600);
  REQUIRE_OK(MakeLocalCertificates(directory, 1, 1));  // In place of the earlier ones.
  CHECK_FALSE(std::filesystem::exists(LocalTlsFolder(directory, "server-2")));
}

TEST_CASE("Local certificates: a folder that is not Capstan's is not emptied", "[cli][security]") {
  const std::string directory = testing::TestPath("other");
  std::filesystem::create_directories(directory + "/tls/user");
  std::ofstream(directory + "/tls/user/key.pem") << "somebody's";
  CHECK_STATUS(MakeLocalCertificates(directory, 1, 1), absl::StatusCode::kFailedPrecondition,
               directory + "/tls holds \"user\" and no .capstan-folder");
  CHECK(testing::ReadFile(directory + "/tls/user/key.pem") == "somebody's");
}

}  // namespace
}  // namespace capstan::cli::local_certificates_test
