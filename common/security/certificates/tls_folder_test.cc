#include "common/security/certificates/tls_folder.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "common/security/certificates/certificate_authority.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"

namespace capstan::tls_folder_test {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

struct Fixture {
  Fixture() {
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    REQUIRE_OK(authority);
    auto made = authority->Issue({.cluster = "prod", .role = PeerRole::kWorker, .name = "w-1"}, {},
                                 absl::Hours(1), kNow);
    REQUIRE_OK(made);
    issued = *made;
    Write("ca.pem", authority->certificate_pem(), 0644);
    Write("cert.pem", issued.certificate_pem, 0644);
    Write("key.pem", issued.key_pem, 0600);
  }
  void Write(const std::string& name, const std::string& text, mode_t mode) const {
    std::ofstream(folder + "/" + name, std::ios::binary) << text;
    chmod((folder + "/" + name).c_str(), mode);
  }

  const std::string folder = testing::TestPath("tls");
  const absl::StatusOr<CertificateAuthority> authority =
      CertificateAuthority::Create("prod", absl::Hours(24), kNow);
  IssuedCertificate issued;
};

TEST_CASE("TLS folder: a whole one is read", "[security]") {
  Fixture f;
  REQUIRE_OK_AND_ASSIGN(const TlsFolder files, TlsFolder::Read(f.folder, kNow));
  CHECK(files.facts.identity.name == "w-1");
  CHECK(files.key_pem == f.issued.key_pem);
}

TEST_CASE("TLS folder: what is wrong is named with its file", "[security]") {
  Fixture f;
  using absl::StatusCode;
  SECTION("a missing folder") {
    CHECK_STATUS(TlsFolder::Read("/none", kNow), StatusCode::kNotFound, "/none");
  }
  SECTION("a missing file") {
    std::filesystem::remove(f.folder + "/key.pem");
    CHECK_STATUS(TlsFolder::Read(f.folder, kNow), StatusCode::kNotFound, "key.pem");
  }
  SECTION("a key that others can read") {
    chmod((f.folder + "/key.pem").c_str(), 0644);
    CHECK_STATUS(TlsFolder::Read(f.folder, kNow), StatusCode::kFailedPrecondition, "chmod 600");
  }
  SECTION("a pipe") {
    std::filesystem::remove(f.folder + "/ca.pem");
    REQUIRE(mkfifo((f.folder + "/ca.pem").c_str(), 0600) == 0);
    CHECK_STATUS(TlsFolder::Read(f.folder, kNow), StatusCode::kFailedPrecondition, "regular file");
  }
  SECTION("a certificate that is none") {
    f.Write("cert.pem", "hello\n", 0644);
    CHECK_STATUS(TlsFolder::Read(f.folder, kNow), StatusCode::kInvalidArgument, "cert.pem");
  }
  SECTION("another authority") {
    REQUIRE_OK_AND_ASSIGN(const auto other,
                          CertificateAuthority::Create("prod", absl::Hours(24), kNow));
    f.Write("ca.pem", other.certificate_pem(), 0644);
    CHECK_STATUS(TlsFolder::Read(f.folder, kNow), StatusCode::kFailedPrecondition, "cert.pem");
  }
  SECTION("an expired certificate") {
    CHECK_STATUS(TlsFolder::Read(f.folder, kNow + absl::Hours(2)), StatusCode::kFailedPrecondition,
                 "expired");
  }
}

}  // namespace
}  // namespace capstan::tls_folder_test
