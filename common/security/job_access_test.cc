#include "common/security/job_access.h"

#include <catch2/catch.hpp>
#include <optional>
#include <string>

namespace capstan::job_access_test {
namespace {

std::optional<Identity> Caller(PeerRole role, const std::string& name = "ann") {
  return Identity{.cluster = "prod", .role = role, .name = name};
}

TEST_CASE("Job access: the owner is the role and the name of who submits", "[security]") {
  CHECK(OwnerFor(Caller(PeerRole::kUser)) == "user/ann");
  CHECK(OwnerFor(Caller(PeerRole::kAdmin, "root")) == "admin/root");
  CHECK(OwnerFor(std::nullopt).empty());
}

TEST_CASE("Job access: a user reads and changes its own jobs, and no others", "[security]") {
  const auto ann = Caller(PeerRole::kUser);
  CHECK(MayRead(ann, "user/ann"));
  CHECK(MayChange(ann, "user/ann"));
  for (const std::string owner :
       {"user/bob", "user/an", "user/anna", "admin/ann", "reader/ann", "ann", "user/", "/", ""}) {
    INFO(owner);
    CHECK_FALSE(MayRead(ann, owner));
    CHECK_FALSE(MayChange(ann, owner));
  }
}

TEST_CASE("Job access: an admin, and everybody without credentials, may do everything",
          "[security]") {
  for (const auto& caller : {Caller(PeerRole::kAdmin), std::optional<Identity>()}) {
    for (const std::string owner : {"user/ann", "user/bob", "admin/root", ""}) {
      CHECK(MayRead(caller, owner));
      CHECK(MayChange(caller, owner));
    }
  }
}

TEST_CASE("Job access: readers, metrics and nodes read all jobs and change none", "[security]") {
  for (const PeerRole role : {PeerRole::kReader, PeerRole::kMetrics, PeerRole::kScheduler,
                              PeerRole::kServer, PeerRole::kWorker}) {
    const auto caller = Caller(role, role == PeerRole::kScheduler ? "" : "ann");
    INFO(PeerRoleName(role));
    for (const std::string owner : {"user/ann", "user/bob", ""}) CHECK(MayRead(caller, owner));
    // Not even a job whose owner has the caller's name, or whose text is the caller's own.
    for (const std::string& owner : {std::string("user/ann"), std::string(), OwnerFor(caller)}) {
      CHECK_FALSE(MayChange(caller, owner));
    }
  }
}

}  // namespace
}  // namespace capstan::job_access_test
