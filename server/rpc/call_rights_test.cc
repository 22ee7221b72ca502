#include "server/rpc/call_rights.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "common/testing/status_matchers.h"
#include "server/engine/testing/job_fixture.h"

namespace capstan::server::call_rights_test {
namespace {

constexpr absl::StatusCode kDenied = absl::StatusCode::kPermissionDenied;
const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);
const CapabilityUse kPush = {
    .access = CapabilityUse::Access::kWrite, .rank = Rank(0), .incarnation = Incarnation(1)};

CapabilityKey KeyOf(char c) {
  return CapabilityKey::FromBytes(std::string(CapabilityKey::kBytes, c)).value();
}

std::string OwnOf(char key) {
  return MintCapability(KeyOf(key), {.job = "lenet-1",
                                     .scope = Capability::Scope::kTask,
                                     .rank = Rank(0),
                                     .incarnation = Incarnation(1),
                                     .expiry = kNow + absl::Hours(1)});
}

// Holds job "lenet-1"; '\0': without a key.
struct Fixture {
  explicit Fixture(char key, bool authenticated)
      : rights(&jobs, {.authenticated = authenticated, .now = [this] { return now; }}) {
    Hold(key);
  }
  void Hold(char key) {
    TestJobOptions options{.consistency = {.mode = ConsistencyMode::kAsp}};
    if (key != '\0') options.capability_key = KeyOf(key);
    jobs.Drop("lenet-1");
    jobs.Add(MakeTestJob(options));
  }
  absl::Status Find(const ShownCapability& shown) const {
    return rights.Find("lenet-1", shown, kPush).status();
  }

  absl::Time now = kNow;
  HeldJobs jobs;
  CallRights rights;
};

TEST_CASE("Call rights: a job without a key is open where nobody is authenticated", "[server]") {
  const Fixture open('\0', /*authenticated=*/false);
  REQUIRE_OK(open.Find({}));
  REQUIRE_OK(open.Find({.bytes = "whatever"}));
  REQUIRE_OK_AND_ASSIGN(const auto none, open.rights.Verify(""));
  CHECK(none == nullptr);
  const Fixture closed('\0', /*authenticated=*/true);
  CHECK_STATUS(closed.Find({}), kDenied, "no capability key of the job \"lenet-1\"");
  CHECK_STATUS(closed.rights.Verify(OwnOf('k')).status(), kDenied, "no capability key");
  CHECK_STATUS(closed.rights.Verify("").status(), kDenied, "no capability, expected");
}

TEST_CASE("Call rights: a job with a key is closed to callers without a capability", "[server]") {
  const Fixture f('k', /*authenticated=*/GENERATE(true, false));
  CHECK_STATUS(f.Find({}), kDenied, "no capability, expected the job's");
  CHECK_STATUS(f.Find({.bytes = OwnOf('x')}), kDenied, "is forged");
  REQUIRE_OK(f.Find({.bytes = OwnOf('k')}));
  CHECK_STATUS(f.rights.Find("none", {.bytes = OwnOf('k')}, kPush).status(),
               absl::StatusCode::kNotFound, "\"none\" is not held here");
}

TEST_CASE("Call rights: what a connection was opened with holds for all its calls", "[server]") {
  Fixture f('k', /*authenticated=*/true);
  REQUIRE_OK_AND_ASSIGN(const auto verified, f.rights.Verify(OwnOf('k')));
  REQUIRE(verified != nullptr);
  REQUIRE_OK(f.Find({.verified = verified.get()}));
  CHECK_STATUS(f.rights
                   .Find("lenet-1", {.verified = verified.get()},
                         {.access = CapabilityUse::Access::kRead,
                          .rank = Rank(1),
                          .incarnation = Incarnation(1)})
                   .status(),
               kDenied, "expected the task 1");
  SECTION("it expired after the call had come in, whose connection ends with the next") {
    f.now += absl::Hours(1);
    REQUIRE_OK(f.Find({.verified = verified.get()}));
    CHECK_STATUS(f.rights.Verify(OwnOf('k')).status(), kDenied, "expired at ");
  }
  SECTION("the job has another key now") {
    f.Hold('x');
    CHECK_STATUS(f.Find({.verified = verified.get()}), kDenied,
                 "expected one for \"lenet-1\" as this server holds it now");
  }
}

}  // namespace
}  // namespace capstan::server::call_rights_test
