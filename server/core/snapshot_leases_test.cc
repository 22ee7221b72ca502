#include "server/core/snapshot_leases.h"

#include <catch2/catch.hpp>
#include <vector>

#include "common/testing/status_matchers.h"

namespace capstan::server::snapshot_leases_test {
namespace {

constexpr CheckpointId kOne{1};
constexpr CheckpointId kTwo{2};
constexpr ReaderId kAnn{11};
constexpr ReaderId kBob{12};
constexpr ReaderId kCid{13};

Instant At(int seconds) { return Instant() + absl::Seconds(seconds); }

TEST_CASE("SnapshotLeases: a snapshot is kept until its last reader has closed it", "[server]") {
  SnapshotLeases leases({});
  REQUIRE_OK(leases.Open(kOne, {kAnn, kBob}, At(0)));
  leases.Close(kOne, kAnn);
  leases.Close(kOne, kAnn);
  CHECK(leases.TakeEnded(At(1)).empty());
  REQUIRE_OK(leases.Renew(kOne, kBob, At(1)));
  leases.Close(kOne, kBob);
  CHECK(leases.NextDeadline() <= At(1));  // At once.
  CHECK(leases.TakeEnded(At(1)) == std::vector<CheckpointId>{kOne});
  CHECK(leases.TakeEnded(At(1)).empty());
  CHECK_STATUS(leases.Renew(kOne, kBob, At(1)), absl::StatusCode::kNotFound,
               "snapshot 1 is not kept here");
  leases.Close(kOne, kBob);
}

TEST_CASE("SnapshotLeases: a reader that does not read is forgotten, reading renews", "[server]") {
  SnapshotLeases leases({.lease = absl::Seconds(30)});
  REQUIRE_OK(leases.Open(kOne, {kAnn, kBob}, At(0)));
  CHECK(leases.NextDeadline() == At(30));
  REQUIRE_OK(leases.Renew(kOne, kAnn, At(20)));
  CHECK(leases.NextDeadline() == At(50));
  CHECK(leases.TakeEnded(At(49)).empty());
  REQUIRE_OK(leases.Renew(kOne, kAnn, At(49)));
  CHECK(leases.TakeEnded(At(78)).empty());
  CHECK(leases.TakeEnded(At(79)) == std::vector<CheckpointId>{kOne});
  CHECK(leases.NextDeadline() == Instant::InfiniteFuture());
}

TEST_CASE("SnapshotLeases: nobody joins by the id alone, or comes back", "[server]") {
  SnapshotLeases leases({.lease = absl::Seconds(30)});
  REQUIRE_OK(leases.Open(kOne, {kAnn, kBob}, At(0)));
  CHECK_STATUS(leases.Renew(kOne, kCid, At(10)), absl::StatusCode::kNotFound,
               "snapshot 1 is not kept here for this reader");
  leases.Close(kOne, kAnn);
  CHECK_STATUS(leases.Renew(kOne, kAnn, At(10)), absl::StatusCode::kNotFound, "it was closed");
  CHECK(leases.TakeEnded(At(29)).empty());
  CHECK(leases.TakeEnded(At(30)) == std::vector<CheckpointId>{kOne});
}

TEST_CASE("SnapshotLeases: bounds are told by name, and nothing changes", "[server]") {
  SnapshotLeases leases({.snapshots = 1, .readers = 2});
  CHECK_STATUS(leases.Open(kOne, {}, At(0)), absl::StatusCode::kInvalidArgument, "no readers");
  CHECK_STATUS(leases.Open(kOne, {kAnn, kBob, kCid}, At(0)), absl::StatusCode::kResourceExhausted,
               "for 3 readers: expected at most 2");
  REQUIRE_OK(leases.Open(kOne, {kAnn, kBob}, At(0)));
  CHECK_STATUS(leases.Open(kOne, {kAnn}, At(0)), absl::StatusCode::kAlreadyExists, "snapshot 1");
  CHECK_STATUS(leases.Open(kTwo, {kAnn}, At(0)), absl::StatusCode::kResourceExhausted,
               "1 snapshots of the job are open: expected at most 1");
  CHECK_FALSE(leases.Has(kTwo));
  REQUIRE_OK(leases.Renew(kOne, kAnn, At(0)));
}

}  // namespace
}  // namespace capstan::server::snapshot_leases_test
