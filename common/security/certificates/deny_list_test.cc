#include "common/security/certificates/deny_list.h"

#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"

namespace capstan::deny_list_test {
namespace {

CertificateFacts Facts(const std::string& serial, const std::string& name) {
  CertificateFacts facts;
  facts.identity = {.cluster = "c", .role = PeerRole::kUser, .name = name};
  facts.serial = serial;
  return facts;
}

void Write(const std::string& path, const std::string& text) {
  std::ofstream(path + ".new", std::ios::binary) << text;
  REQUIRE(std::rename((path + ".new").c_str(), path.c_str()) == 0);  // Another inode.
}

TEST_CASE("Deny list: serials as tools print them, identities, and comments", "[security]") {
  REQUIRE_OK_AND_ASSIGN(const DenyEntries entries,
                        ParseDenyList("# stolen\n 00:AB:cd # ann\n\ncapstan://c/user/bob\n"));
  CHECK(entries.Contains(Facts("abcd", "ann")));
  CHECK(entries.Contains(Facts("1", "bob")));
  CHECK_FALSE(entries.Contains(Facts("1", "ann")));
  CHECK_STATUS(ParseDenyList("ab\nxyz\n"), absl::StatusCode::kInvalidArgument, "line 2: \"xyz\"");
  CHECK_STATUS(ParseDenyEntry(""), absl::StatusCode::kInvalidArgument, "expected a serial");
  CHECK_STATUS(ParseDenyEntry(std::string(41, 'a')), absl::StatusCode::kInvalidArgument, "40");
}

TEST_CASE("Deny list: the file counts as it is now, and a wrong one denies everybody",
          "[security]") {
  const std::string path = testing::TestPath("denied.txt");
  DenyList list(path);
  list.Refresh();
  CHECK_FALSE(list.Denies(Facts("ab", "ann")));
  Write(path, "ab\n");
  list.Refresh();
  CHECK(list.Denies(Facts("ab", "ann")));
  CHECK_FALSE(list.Denies(Facts("ac", "ann")));
  Write(path, "not hexadecimal\n");
  list.Refresh();
  CHECK(list.Denies(Facts("ac", "ann")));
  CHECK_STATUS(list.status(), absl::StatusCode::kInvalidArgument, path);
  Write(path, "");
  list.Refresh();
  CHECK_FALSE(list.Denies(Facts("ab", "ann")));
  std::remove(path.c_str());
  list.Refresh();
  CHECK_FALSE(list.Denies(Facts("ab", "ann")));
}

TEST_CASE("Deny list: it stays as it was while its folder is missing", "[security]") {
  const std::string folder = testing::TestPath("tls");
  const std::string link = testing::TestPath("link");
  std::filesystem::create_directories(folder);
  std::filesystem::remove(link);
  std::filesystem::create_directory_symlink(folder, link);
  Write(folder + "/denied.txt", "ab\n");
  DenyList list(link + "/denied.txt");
  list.Refresh();
  CHECK(list.Denies(Facts("ab", "ann")));
  std::filesystem::rename(folder, folder + "-away");
  list.Refresh();
  CHECK(list.Denies(Facts("ab", "ann")));
  CHECK_FALSE(list.Denies(Facts("ac", "ann")));
  std::filesystem::rename(folder + "-away", folder);
  std::remove((folder + "/denied.txt").c_str());
  list.Refresh();
  CHECK_FALSE(list.Denies(Facts("ab", "ann")));
}

}  // namespace
}  // namespace capstan::deny_list_test
