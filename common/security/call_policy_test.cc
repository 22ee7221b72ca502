#include "common/security/call_policy.h"

#include <catch2/catch.hpp>

#include "common/testing/status_matchers.h"

namespace capstan::call_policy_test {
namespace {

Identity Of(PeerRole role) { return {.cluster = "c", .role = role, .name = "n"}; }

TEST_CASE("Call policy: a role that is listed may call, and no other", "[security]") {
  REQUIRE_OK(CheckMayCall(Of(PeerRole::kUser), "/capstan.v1.Scheduler/SubmitJob"));
  REQUIRE_OK(CheckMayCall(Of(PeerRole::kWorker), "/capstan.v1.ParameterServer/Push"));
  CHECK_STATUS(CheckMayCall(Of(PeerRole::kUser), "/capstan.v1.ParameterServer/Push"),
               absl::StatusCode::kPermissionDenied,
               "called by capstan://c/user/n, expected a certificate of the roles worker");
  CHECK_STATUS(CheckMayCall(Of(PeerRole::kUser), "/capstan.v1.Scheduler/DrainNode"),
               absl::StatusCode::kPermissionDenied, "admin");
}

TEST_CASE("Call policy: a method that is not in the table may be called by nobody", "[security]") {
  for (const char* method : {"", "/", "/capstan.v1.Scheduler/SubmitJob2",
                             "/capstan.v1.Scheduler/SubmitJo", "/zzz", "capstan"}) {
    CHECK_STATUS(CheckMayCall(Of(PeerRole::kAdmin), method), absl::StatusCode::kPermissionDenied,
                 "nobody may call it");
  }
}

}  // namespace
}  // namespace capstan::call_policy_test
