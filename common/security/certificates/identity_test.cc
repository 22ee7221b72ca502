#include "common/security/certificates/identity.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/random/philox.h"
#include "common/testing/status_matchers.h"

namespace capstan::identity_test {
namespace {

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

TEST_CASE("Identity: each role has its URI", "[security]") {
  const std::vector<std::pair<Identity, std::string>> all = {
      {{"prod", PeerRole::kScheduler, ""}, "capstan://prod/scheduler"},
      {{"prod", PeerRole::kServer, "s-1"}, "capstan://prod/server/s-1"},
      {{"a.b", PeerRole::kWorker, "w.7"}, "capstan://a.b/worker/w.7"},
      {{"1", PeerRole::kUser, "ann"}, "capstan://1/user/ann"},
      {{"c", PeerRole::kReader, "serving"}, "capstan://c/reader/serving"},
      {{"c", PeerRole::kMetrics, "prometheus"}, "capstan://c/metrics/prometheus"},
      {{"c", PeerRole::kAdmin, "root"}, "capstan://c/admin/root"},
  };
  for (const auto& [identity, uri] : all) {
    CHECK(FormatIdentity(identity) == uri);
    REQUIRE_OK_AND_ASSIGN(const Identity parsed, ParseIdentity(uri));
    CHECK(parsed == identity);
  }
}

TEST_CASE("Identity: a text that is not exactly an identity's is refused", "[security]") {
  const std::string longest(kIdentityNameBytesMax, 'a');
  const std::string server = "capstan://prod/server/s-1";
  REQUIRE_OK(ParseIdentity(server));
  REQUIRE_OK(ParseIdentity(absl::StrCat("capstan://", longest, "/user/", longest)));
  const std::vector<std::string> wrong = {
      "",
      "capstan:",
      "capstan://",
      "capstan:///",
      "capstan://prod",
      "capstan://prod/",
      "capstan://prod/server",
      "capstan://prod/server/",
      "capstan://prod/server//s-1",
      "capstan:///server/s-1",
      "capstan://prod/scheduler/",
      "capstan://prod/scheduler/x",
      "capstan://prod/scheduler?x",
      "capstan://prod/scheduler#x",
      "capstan://prod/server/s-1/",
      "capstan://prod/server/s-1/x",
      "capstan://prod/server/s-1?x=1",
      "capstan://prod/server/s-1#x",
      "capstan://prod/server/s_1",
      "capstan://prod/server/s%2d1",
      "capstan://prod/server/S-1",
      "capstan://prod/server/..",
      "capstan://prod/server/.",
      "capstan://prod/server/-s",
      "capstan://prod/SERVER/s-1",
      "capstan://prod/root/s-1",
      "capstan://PROD/server/s-1",
      "capstan://prod:443/server/s-1",
      "capstan://user@prod/server/s-1",
      "capstan://prod\\server\\s-1",
      "capstan://../server/s-1",
      "CAPSTAN://prod/server/s-1",
      "Capstan://prod/server/s-1",
      "capstan:/prod/server/s-1",
      "capstan//prod/server/s-1",
      "spiffe://prod/server/s-1",
      "https://prod/server/s-1",
      "xcapstan://prod/server/s-1",
      " " + server,
      server + " ",
      server + "\n",
      server + std::string(1, '\0'),
      "capstan://prod/server/s" + std::string(1, '\0') + "1",
      "capstan://prod/server/\xc3\xa9",
      absl::StrCat("capstan://", longest, "a/user/b"),
      absl::StrCat("capstan://b/user/", longest, "a"),
      server + server,
  };
  for (const std::string& text : wrong) {
    INFO(text);
    CHECK_STATUS(ParseIdentity(text), kInvalid, "identity \"");
  }
}

TEST_CASE("Identity: messages name the part that is wrong", "[security]") {
  CHECK_STATUS(ParseIdentity("capstan://prod/server/s_1"), kInvalid,
               "name: \"s_1\" is not 1 to 63");
  CHECK_STATUS(ParseIdentity("capstan://Prod/server/s-1"), kInvalid, "cluster: \"Prod\"");
  CHECK_STATUS(ParseIdentity("spiffe://prod/server/s-1"), kInvalid, "expected capstan://CLUSTER");
  CHECK_STATUS(CheckIdentity({"c", PeerRole::kScheduler, "x"}), kInvalid, "expected none");
  CHECK_STATUS(CheckIdentity({"c", PeerRole::kUser, ""}), kInvalid, "name: \"\"");
  CHECK_STATUS(CheckIdentity({"", PeerRole::kUser, "a"}), kInvalid, "cluster: \"\"");
  CHECK_STATUS(ParsePeerRole("root"), kInvalid, "expected one of scheduler, server");
}

// Draws from one key, so that each run makes the same texts.
class Draw {
 public:
  uint32_t Below(uint32_t end) { return PhiloxWord(/*key=*/7, next_++) % end; }
  std::string Name() {
    static constexpr char kFirst[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    static constexpr char kLater[] = "abcdefghijklmnopqrstuvwxyz0123456789.-";
    std::string name(1, kFirst[Below(sizeof(kFirst) - 1)]);
    const uint32_t size = 1 + Below(kIdentityNameBytesMax);
    while (name.size() < size) name += kLater[Below(sizeof(kLater) - 1)];
    return name;
  }

 private:
  uint64_t next_ = 0;
};

TEST_CASE("Identity: the URI of any identity parses to it, and no other text does", "[security]") {
  Draw draw;
  for (int run = 0; run < 2000; ++run) {
    Identity identity{.cluster = draw.Name(), .role = static_cast<PeerRole>(draw.Below(7))};
    if (identity.role != PeerRole::kScheduler) identity.name = draw.Name();
    REQUIRE_OK(CheckIdentity(identity));
    const std::string uri = FormatIdentity(identity);
    INFO(uri);
    REQUIRE_OK_AND_ASSIGN(const Identity parsed, ParseIdentity(uri));
    REQUIRE(parsed == identity);
    // A changed byte gives another identity, with exactly this text, or is refused.
    std::string changed = uri;
    changed[draw.Below(static_cast<uint32_t>(uri.size()))] = static_cast<char>(draw.Below(256));
    const absl::StatusOr<Identity> other = ParseIdentity(changed);
    if (other.ok()) REQUIRE(FormatIdentity(*other) == changed);
  }
}

}  // namespace
}  // namespace capstan::identity_test
