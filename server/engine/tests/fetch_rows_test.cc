// Pulls of a job whose rows lie on disk: they are read without the job's lock.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "common/wire/tensor_message.h"
#include "server/engine/job/held_job.h"
#include "server/engine/testing/job_fixture.h"
#include "server/store/sparse/testing/memory_row_disks.h"

namespace capstan::server::fetch_rows_test {
namespace {

constexpr int32_t kBuckets = 3;

class CountingTransport final : public ReplicaTransport {
 public:
  void Send(const v1::ServerAddress&, ReplicaRequest, Moved, Done) override { ++sent; }
  int sent = 0;
};

struct DiskJob {
  DiskJob() {
    TestJobOptions options;
    options.consistency = {.mode = ConsistencyMode::kAsp};
    options.buckets = kBuckets;
    options.memory_bytes = 6000;  // Some twenty payloads of a bucket beside the heads.
    options.disks = &disks;
    options.transport = &transport;
    options.schedule_tick = [this](Instant when) { tick = std::min(tick, when); };
    job = MakeTestJob(options);
    std::vector<uint64_t> keys;
    for (uint64_t key = 1; key <= 600; ++key) keys.push_back(key);
    REQUIRE_OK(Push(keys));
  }

  absl::Status Push(const std::vector<uint64_t>& keys) {
    v1::PushResponse response;
    absl::Status ended = absl::UnknownError("the push waits");
    job->calls().Push(Detach(RowPushOf(0, kBuckets, keys, -1.0f, ++sequence)), &response,
                      [&](const absl::Status& status) { ended = status; });
    return ended;
  }
  // The row of the one key that is pulled.
  absl::StatusOr<float> Pull(uint64_t key) {
    PullAnswer answer;
    absl::Status ended = absl::UnknownError("the pull waits");
    job->calls().Pull(RowPullOf(0, kBuckets, {key}), &answer,
                      [&](const absl::Status& status) { ended = status; });
    if (!ended.ok()) return ended;
    const std::string bytes(answer.values.at(0));
    float value = 0;
    REQUIRE(bytes.size() == kTestDim * sizeof(value));
    std::memcpy(&value, bytes.data(), sizeof(value));
    return value;
  }

  MemoryRowDisks disks;
  CountingTransport transport;
  Instant tick = Instant::InfiniteFuture();  // The earliest that the job asked for.
  std::shared_ptr<HeldJob> job;
  uint64_t sequence = 0;
};

TEST_CASE("HeldJob: other calls go on while a pull's rows are read from disk", "[server]") {
  DiskJob disk;
  const int64_t read = disk.disks.read;
  int fetches = 0;
  std::optional<absl::StatusOr<float>> other;
  disk.disks.on_fetch = [&] {
    if (++fetches > 1) return;
    REQUIRE_OK(disk.Push({7}));  // Before the pull has its turn.
    other = disk.Pull(590);
  };
  REQUIRE_OK_AND_ASSIGN(const float value, disk.Pull(7));
  CHECK(value == 2.0f);
  REQUIRE(other.has_value());
  REQUIRE_OK(*other);
  CHECK(**other == 1.0f);
  CHECK(fetches >= 1);
  CHECK(disk.disks.read > read);
}

TEST_CASE("HeldJob: a pull finds what was fetched for it", "[server]") {
  DiskJob disk;
  int fetches = 0;
  disk.disks.on_fetch = [&] { ++fetches; };
  int64_t read = disk.disks.read;
  REQUIRE_OK(disk.Pull(7));
  CHECK(fetches == 1);
  CHECK(disk.disks.read == read + 1);  // Once, not once more under the lock.
  REQUIRE_OK(disk.Pull(7));
  CHECK(fetches == 1);
}

TEST_CASE("HeldJob: a shard may go while its rows are fetched", "[server]") {
  DiskJob disk;
  disk.disks.on_fetch = [&] { TakeRouting(*disk.job, TestRouting(2)); };  // Without table 1.
  const absl::Status status = disk.Pull(7).status();
  CHECK(!status.ok());
  CHECK(disk.job->failure().ok());
}

TEST_CASE("HeldJob: a row that its disk has lost is a lost copy of the tables (issue 20)",
          "[server]") {
  DiskJob disk;
  disk.disks.read_error = absl::DataLossError("row 7 on disk is not what was written");
  // The error is that of a server that is gone: the scheduler and clients turn to other copies.
  CHECK_STATUS(disk.Pull(7), absl::StatusCode::kUnavailable,
               "row 7 on disk is not what was written");
  CHECK(disk.job->failure().code() == absl::StatusCode::kUnavailable);
  // Nobody is given what may be half of a push.
  disk.disks.read_error = absl::OkStatus();
  CHECK(disk.job->captures().Capture({}).status().code() == absl::StatusCode::kUnavailable);
  CHECK(disk.job->Copies().empty());
  disk.tick = Instant::InfiniteFuture();
  v1::RoutingTable routing = TestRouting(2);
  AddBuckets(&routing, kBuckets);
  AddReplica(&routing, "server-2", /*in_sync=*/false);
  TakeRouting(*disk.job, routing);
  disk.job->Tick(Instant());
  CHECK(disk.transport.sent == 0);
  CHECK(disk.tick == Instant::InfiniteFuture());  // Nor does it try without pause.
}

TEST_CASE("HeldJob: a full disk of rows is a lost copy of the tables (issue 20)", "[server]") {
  DiskJob disk;
  disk.disks.write_error = absl::ResourceExhaustedError("cannot write rows in /x: no space left");
  absl::Status status;
  for (uint64_t key = 0; status.ok() && key < 600; ++key) status = disk.Push({key});
  CHECK_STATUS(status, absl::StatusCode::kUnavailable, "cannot write rows in /x: no space left");
  CHECK(disk.job->failure().code() == absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace capstan::server::fetch_rows_test
