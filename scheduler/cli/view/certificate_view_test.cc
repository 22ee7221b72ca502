#include "scheduler/cli/view/certificate_view.h"

#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>
#include <cstdlib>

namespace capstan::cli::certificate_view_test {
namespace {

template <typename Message>
Message Parse(const std::string& text) {
  Message message;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(text, &message));
  return message;
}

TEST_CASE("CertificateTable: a row for each certificate, with its state", "[cli]") {
  setenv("TZ", "UTC", 1);
  CHECK(CertificateTable({}) == "No certificates.\n");
  CHECK(CertificateTable(Parse<CertificateListOutput>(R"(
          certificates { serial: "a1" identity: "capstan://c/scheduler"
                         not_after_unix_ms: 1700000000000 }
          certificates { serial: "b22" identity: "capstan://c/worker/w-1" expired: true
                         not_after_unix_ms: 1600000000000 }
          certificates { serial: "c3" identity: "capstan://c/user/ann" expired: true denied: true
                         not_after_unix_ms: 1600000000000 })")) ==
        "SERIAL  IDENTITY                EXPIRES              STATE\n"
        "a1      capstan://c/scheduler   2023-11-14 22:13:20  valid\n"
        "b22     capstan://c/worker/w-1  2020-09-13 12:26:40  expired\n"
        "c3      capstan://c/user/ann    2020-09-13 12:26:40  denied\n");
}

TEST_CASE("DescribeIssue: names the former folder only if there is one", "[cli]") {
  setenv("TZ", "UTC", 1);
  auto issue = Parse<IssueOutput>(R"(
      folder: "out" certificate { serial: "a1" identity: "capstan://c/user/ann"
                                  not_after_unix_ms: 1700000000000 })");
  const std::string text = "out: capstan://c/user/ann\n  serial a1, expires 2023-11-14 22:13:20\n";
  CHECK(DescribeIssue(issue) == text);
  issue.set_former_folder("/old");
  CHECK_THAT(DescribeIssue(issue), Catch::StartsWith(text) && Catch::Contains("in /old;"));
}

TEST_CASE("DescribeDenial: says what is denied and where the file must go", "[cli]") {
  auto denial = Parse<DenyOutput>(R"(
      entry: "a1" file: "ca/denied.txt"
      certificates { serial: "a1" identity: "capstan://c/user/ann" })");
  CHECK(DescribeDenial(denial) ==
        "ca/denied.txt: added a1\n  denies a1 of capstan://c/user/ann\n"
        "Copy ca/denied.txt into the folder (--tls-dir) of each daemon: it reads the file once a "
        "second.\n");
  denial.set_was_there(true);
  CHECK_THAT(DescribeDenial(denial), Catch::StartsWith("ca/denied.txt already has a1\n"));
}

}  // namespace
}  // namespace capstan::cli::certificate_view_test
