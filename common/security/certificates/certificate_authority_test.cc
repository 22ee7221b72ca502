#include "common/security/certificates/certificate_authority.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"

namespace capstan::certificate_authority_test {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);
constexpr absl::Duration kDay = absl::Hours(24);

Identity Server(const std::string& name) {
  return {.cluster = "prod", .role = PeerRole::kServer, .name = name};
}

void Write(const std::string& path, const std::string& text, mode_t mode) {
  std::ofstream(path, std::ios::binary) << text;
  chmod(path.c_str(), mode);
}

TEST_CASE("Certificate authority: what it issues says who it is and is valid", "[security]") {
  REQUIRE_OK_AND_ASSIGN(const CertificateAuthority authority,
                        CertificateAuthority::Create("prod", 365 * kDay, kNow));
  REQUIRE_OK_AND_ASSIGN(const IssuedCertificate issued,
                        authority.Issue(Server("s-1"), {"host-1", "10.0.0.1"}, kDay, kNow));
  CHECK(issued.facts.identity == Server("s-1"));
  CHECK(issued.facts.not_before == kNow - kCertificateBackdating);
  CHECK(issued.facts.not_after == kNow + kDay);
  CHECK(issued.facts.serial.size() == 32);
  CHECK_THAT(issued.facts.subject_alternative_names, Catch::Contains("DNS:host-1"));
  REQUIRE_OK(KeyFits(issued.certificate_pem, issued.key_pem));
  REQUIRE_OK(VerifyCertificate(issued.certificate_pem, authority.certificate_pem(), kNow));
  CHECK_STATUS(
      VerifyCertificate(issued.certificate_pem, authority.certificate_pem(), kNow + 2 * kDay),
      absl::StatusCode::kFailedPrecondition, "certificate has expired");
  CHECK_STATUS(VerifyCertificate(issued.certificate_pem, authority.certificate_pem(), kNow - kDay),
               absl::StatusCode::kFailedPrecondition, "not yet valid");
}

TEST_CASE("Certificate authority: another one's certificate or key does not count", "[security]") {
  REQUIRE_OK_AND_ASSIGN(const auto ours, CertificateAuthority::Create("prod", kDay * 9, kNow));
  REQUIRE_OK_AND_ASSIGN(const auto others, CertificateAuthority::Create("prod", kDay * 9, kNow));
  REQUIRE_OK_AND_ASSIGN(const auto a, ours.Issue(Server("s-1"), {}, kDay, kNow));
  REQUIRE_OK_AND_ASSIGN(const auto b, others.Issue(Server("s-1"), {}, kDay, kNow));
  CHECK_STATUS(VerifyCertificate(b.certificate_pem, ours.certificate_pem(), kNow),
               absl::StatusCode::kFailedPrecondition, "");
  CHECK_STATUS(KeyFits(a.certificate_pem, b.key_pem), absl::StatusCode::kFailedPrecondition,
               "another certificate");
  REQUIRE_OK(VerifyCertificate(b.certificate_pem, ours.certificate_pem() + others.certificate_pem(),
                               kNow));
}

TEST_CASE("Certificate authority: what it refuses", "[security]") {
  REQUIRE_OK_AND_ASSIGN(const auto authority, CertificateAuthority::Create("prod", kDay, kNow));
  CHECK_STATUS(authority.Issue(Server("S 1"), {}, kDay, kNow), absl::StatusCode::kInvalidArgument,
               "S 1");
  CHECK_STATUS(authority.Issue({.cluster = "dev", .role = PeerRole::kScheduler}, {}, kDay, kNow),
               absl::StatusCode::kInvalidArgument, "expected the authority's, prod");
  CHECK_STATUS(authority.Issue(Server("s-1"), {"a,URI:capstan://prod/admin/x"}, kDay, kNow),
               absl::StatusCode::kInvalidArgument, "expected the name of a host");
  CHECK_STATUS(authority.Issue(Server("s-1"), {}, 2 * kDay, kNow),
               absl::StatusCode::kFailedPrecondition, "would end after its authority");
  CHECK_STATUS(authority.Issue(Server("s-1"), {}, absl::ZeroDuration(), kNow),
               absl::StatusCode::kInvalidArgument, "lifetime");
  CHECK_STATUS(CertificateAuthority::Create("", kDay, kNow), absl::StatusCode::kInvalidArgument,
               "cluster");
}

TEST_CASE("Certificate authority: it is loaded from its folder, if nobody else reads the key",
          "[security]") {
  REQUIRE_OK_AND_ASSIGN(const auto made, CertificateAuthority::Create("prod", kDay, kNow));
  const std::string folder = testing::TestPath("authority");
  std::filesystem::create_directories(folder);
  CHECK_STATUS(CertificateAuthority::Load(folder), absl::StatusCode::kNotFound, "ca.pem");
  Write(folder + "/ca.pem", made.certificate_pem(), 0644);
  Write(folder + "/ca-key.pem", made.key_pem(), 0640);
  CHECK_STATUS(CertificateAuthority::Load(folder), absl::StatusCode::kFailedPrecondition,
               "chmod 600");
  chmod((folder + "/ca-key.pem").c_str(), 0600);
  REQUIRE_OK_AND_ASSIGN(const auto loaded, CertificateAuthority::Load(folder));
  CHECK(loaded.cluster() == "prod");
  CHECK(loaded.not_after() == kNow + kDay);
  REQUIRE_OK(loaded.Issue(Server("s-1"), {}, absl::Hours(1), kNow));
  REQUIRE_OK_AND_ASSIGN(const auto leaf, made.Issue(Server("s-1"), {}, absl::Hours(1), kNow));
  Write(folder + "/ca.pem", leaf.certificate_pem, 0644);
  Write(folder + "/ca-key.pem", leaf.key_pem, 0600);
  CHECK_STATUS(CertificateAuthority::Load(folder), absl::StatusCode::kInvalidArgument,
               "no authority");
}

}  // namespace
}  // namespace capstan::certificate_authority_test
