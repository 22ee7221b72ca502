#include "scheduler/cli/certificates/authority_folder.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/security/certificates/certificate.h"
#include "common/security/certificates/deny_list.h"
#include "common/security/certificates/tls_folder.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"

namespace capstan::cli::authority_folder_test {
namespace {

namespace fs = std::filesystem;
using absl::StatusCode;

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);
constexpr absl::Duration kDay = absl::Hours(24);

struct Fixture {
  Fixture() {
    fs::remove_all(root);
    fs::create_directories(root);
    REQUIRE_OK(InitAuthority(ca, "prod", 365 * kDay, kNow));
  }
  absl::StatusOr<MadeFolder> Issue(PeerRole role, const std::string& name, const std::string& out,
                                   absl::Time now = kNow) const {
    return IssueCertificate(ca,
                            {.role = role,
                             .name = name,
                             .hosts = {"host-1"},
                             .lifetime = 30 * kDay,
                             .out = absl::StrCat(root, "/", out)},
                            now);
  }
  void WriteDenied(const std::string& text) const { std::ofstream(ca + "/denied.txt") << text; }

  const std::string root = testing::TestPath("authority");
  const std::string ca = root + "/ca";
};

TEST_CASE("Authority folder: it is made once, and only its owner can read the key", "[cli]") {
  Fixture f;
  struct stat file {};
  REQUIRE(stat(f.ca.c_str(), &file) == 0);
  CHECK((file.st_mode & 07777) == 0700);
  REQUIRE(stat((f.ca + "/ca-key.pem").c_str(), &file) == 0);
  CHECK((file.st_mode & 07777) == 0600);
  const std::string key = testing::ReadFile(f.ca + "/ca-key.pem");
  CHECK_STATUS(InitAuthority(f.ca, "prod", kDay, kNow), StatusCode::kAlreadyExists, f.ca);
  CHECK(testing::ReadFile(f.ca + "/ca-key.pem") == key);
  CHECK_STATUS(InitAuthority(f.root + "/x", "A b", kDay, kNow), StatusCode::kInvalidArgument,
               "A b");
  CHECK_FALSE(fs::exists(f.root + "/x"));
}

TEST_CASE("Authority folder: a daemon can read the folder that is made for it", "[cli]") {
  Fixture f;
  f.WriteDenied("# Nobody yet.\n");
  REQUIRE_OK_AND_ASSIGN(const MadeFolder made, f.Issue(PeerRole::kWorker, "w-1", "w-1"));
  REQUIRE_OK_AND_ASSIGN(const TlsFolder files, TlsFolder::Read(f.root + "/w-1", kNow));
  CHECK(FormatIdentity(files.facts.identity) == "capstan://prod/worker/w-1");
  CHECK(files.facts.serial == made.facts.serial);
  CHECK(testing::ReadFile(files.DeniedPath()) == "# Nobody yet.\n");
  REQUIRE_OK(f.Issue(PeerRole::kScheduler, "", "scheduler"));
}

TEST_CASE("Authority folder: what is issued is listed by identity, newest first", "[cli]") {
  Fixture f;
  REQUIRE_OK_AND_ASSIGN(const auto none, ListIssued(f.ca));
  CHECK(none.empty());
  REQUIRE_OK_AND_ASSIGN(const auto worker, f.Issue(PeerRole::kWorker, "w-1", "w-1"));
  REQUIRE_OK_AND_ASSIGN(const auto later, f.Issue(PeerRole::kWorker, "w-1", "later", kNow + kDay));
  REQUIRE_OK_AND_ASSIGN(const auto server, f.Issue(PeerRole::kServer, "s-1", "s-1"));
  std::ofstream(f.ca + "/issued/x.pem.tmp-1-2") << "half";
  fs::remove(f.ca + "/ca-key.pem");  // Listing does not need it.
  REQUIRE_OK_AND_ASSIGN(const auto issued, ListIssued(f.ca));
  REQUIRE(issued.size() == 3);
  CHECK(issued[0].facts.serial == server.facts.serial);
  CHECK(issued[1].facts.serial == later.facts.serial);
  CHECK(issued[2].facts.serial == worker.facts.serial);
  CHECK_FALSE(issued[0].is_denied);
}

TEST_CASE("Authority folder: a denied serial is in the list and in later folders", "[cli]") {
  Fixture f;
  REQUIRE_OK_AND_ASSIGN(const auto made, f.Issue(PeerRole::kUser, "ann", "ann"));
  f.WriteDenied("# The last line has no end.\n1234");
  REQUIRE_OK_AND_ASSIGN(const Denial denial, DenyCertificate(f.ca, made.facts.serial));
  CHECK_FALSE(denial.was_there);
  REQUIRE(denial.certificates.size() == 1);
  CHECK(denial.certificates[0].facts.serial == made.facts.serial);
  const std::string text = testing::ReadFile(f.ca + "/denied.txt");
  CHECK(text == absl::StrCat("# The last line has no end.\n1234\n", made.facts.serial,
                             "  # capstan://prod/user/ann\n"));
  REQUIRE_OK_AND_ASSIGN(const auto issued, ListIssued(f.ca));
  CHECK(issued[0].is_denied);

  REQUIRE_OK_AND_ASSIGN(const Denial again, DenyCertificate(f.ca, made.facts.serial));
  CHECK(again.was_there);
  CHECK(testing::ReadFile(f.ca + "/denied.txt") == text);
  // The identity is not denied: ann may get another certificate.
  REQUIRE_OK(f.Issue(PeerRole::kUser, "ann", "ann-2"));
  DenyList list(f.root + "/ann-2/denied.txt");
  list.Refresh();
  CHECK(list.Denies(made.facts));
}

TEST_CASE("Authority folder: a denied identity gets no more certificates", "[cli]") {
  Fixture f;
  REQUIRE_OK(f.Issue(PeerRole::kUser, "ann", "ann"));
  REQUIRE_OK(f.Issue(PeerRole::kUser, "bob", "bob"));
  REQUIRE_OK_AND_ASSIGN(const Denial denial, DenyCertificate(f.ca, "capstan://prod/user/ann"));
  CHECK(denial.certificates.size() == 1);
  CHECK_STATUS(f.Issue(PeerRole::kUser, "ann", "ann-2"), StatusCode::kFailedPrecondition,
               "capstan://prod/user/ann");
  CHECK_FALSE(fs::exists(f.root + "/ann-2"));
  REQUIRE_OK_AND_ASSIGN(const auto issued, ListIssued(f.ca));
  CHECK(issued.size() == 2);
}

TEST_CASE("Authority folder: while a second authority takes over, both are trusted", "[cli]") {
  Fixture f;
  const std::string second = f.root + "/ca-2";
  REQUIRE_OK(InitAuthority(second, "prod", 365 * kDay, kNow));
  const std::string pem = testing::ReadFile(second + "/ca.pem");
  std::ofstream(second + "/ca.pem", std::ios::app) << testing::ReadFile(f.ca + "/ca.pem");
  std::ofstream(f.ca + "/ca.pem", std::ios::app) << pem;
  REQUIRE_OK(f.Issue(PeerRole::kWorker, "w-1", "old"));
  const CertificateRequest request = {
      .role = PeerRole::kWorker, .name = "w-1", .lifetime = kDay, .out = f.root + "/new"};
  REQUIRE_OK(IssueCertificate(second, request, kNow));
  REQUIRE_OK_AND_ASSIGN(const TlsFolder old_files, TlsFolder::Read(f.root + "/old", kNow));
  REQUIRE_OK_AND_ASSIGN(const TlsFolder new_files, TlsFolder::Read(f.root + "/new", kNow));
  REQUIRE_OK(VerifyCertificate(old_files.certificate_pem, new_files.authorities_pem, kNow));
  REQUIRE_OK(VerifyCertificate(new_files.certificate_pem, old_files.authorities_pem, kNow));
}

TEST_CASE("Authority folder: what is wrong is named with its file", "[cli]") {
  Fixture f;
  SECTION("no authority") {
    CHECK_STATUS(ListIssued(f.root + "/none"), StatusCode::kNotFound, "capstan cert init");
    CHECK_STATUS(ListIssued(f.root), StatusCode::kNotFound, "ca.pem");
    CHECK_STATUS(DenyCertificate(f.root, "12"), StatusCode::kNotFound, "ca.pem");
  }
  SECTION("an entry that is neither a serial nor an identity") {
    CHECK_STATUS(DenyCertificate(f.ca, "ann"), StatusCode::kInvalidArgument, "ann");
    CHECK_FALSE(fs::exists(f.ca + "/denied.txt"));
  }
  SECTION("a damaged list of the denied") {
    f.WriteDenied("ok?\n");
    CHECK_STATUS(f.Issue(PeerRole::kUser, "ann", "ann"), StatusCode::kInvalidArgument,
                 "denied.txt: line 1");
    CHECK_STATUS(DenyCertificate(f.ca, "12"), StatusCode::kInvalidArgument, "denied.txt: line 1");
  }
  SECTION("a damaged record") {
    fs::create_directories(f.ca + "/issued");
    std::ofstream(f.ca + "/issued/12.pem") << "half";
    CHECK_STATUS(ListIssued(f.ca), StatusCode::kInvalidArgument, "issued/12.pem");
  }
  SECTION("a folder that exists: nothing is issued") {
    REQUIRE_OK(f.Issue(PeerRole::kUser, "ann", "ann"));
    CHECK_STATUS(f.Issue(PeerRole::kUser, "ann", "ann"), StatusCode::kAlreadyExists, "ann");
    REQUIRE_OK_AND_ASSIGN(const auto issued, ListIssued(f.ca));
    CHECK(issued.size() == 1);
  }
  SECTION("the authority's own folder is never replaced") {
    CHECK_STATUS(IssueCertificate(f.ca,
                                  {.role = PeerRole::kUser,
                                   .name = "ann",
                                   .lifetime = kDay,
                                   .out = f.ca,
                                   .if_exists = IfFolderExists::kReplace},
                                  kNow),
                 StatusCode::kFailedPrecondition, f.ca);
  }
}

}  // namespace
}  // namespace capstan::cli::authority_folder_test
