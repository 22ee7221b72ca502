#include "common/security/testing/test_authority.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/security/certificates/tls_folder.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"

namespace capstan::testing {
namespace {

constexpr absl::Duration kLifetime = absl::Hours(1);

CertificateAuthority Make(const std::string& cluster) {
  auto authority = CertificateAuthority::Create(cluster, absl::Hours(24), absl::Now());
  REQUIRE_OK(authority);
  return *std::move(authority);
}

void Replace(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".new";
  std::ofstream(temporary, std::ios::binary) << text;
  REQUIRE(chmod(temporary.c_str(), 0600) == 0);
  REQUIRE(std::rename(temporary.c_str(), path.c_str()) == 0);
}

}  // namespace

TestAuthority::TestAuthority(const std::string& cluster) : authority_(Make(cluster)) {}

std::string TestAuthority::MakeFolder(const std::string& name, PeerRole role,
                                      const std::string& peer, absl::Duration age) const {
  const auto issued =
      authority_.Issue({.cluster = authority_.cluster(), .role = role, .name = peer}, {"127.0.0.1"},
                       kLifetime, absl::Now() - age);
  REQUIRE_OK(issued);
  const std::string folder = TestPath(name);
  std::filesystem::create_directories(folder);
  Replace(absl::StrCat(folder, "/", kTrustedFile), authority_.certificate_pem());
  Replace(absl::StrCat(folder, "/", kCertificateFile), issued->certificate_pem);
  Replace(absl::StrCat(folder, "/", kKeyFile), issued->key_pem);
  return folder;
}

}  // namespace capstan::testing
