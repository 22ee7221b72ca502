#include "server/checkpoint/disk_table_source.h"

#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/checkpoint_part.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/testing/test_checkpoint.h"
#include "common/storage/testing/sim_disk.h"
#include "common/storage/write_durably.h"
#include "common/testing/status_matchers.h"
#include "server/checkpoint/checkpoint_writer.h"
#include "server/log/testing/log_fixture.h"

namespace capstan::server::disk_table_source_test {
namespace {

using capstan::testing::MakeManifest;
using capstan::testing::MakeSnapshot;

CapturedShard Captured(const v1::CheckpointPart& part) {
  const int64_t elements = part.element_end() - part.element_begin();
  return {.shard = {.key = {TableId(part.table()), ShardId(part.shard())},
                    .elements = {part.element_begin(), part.element_end()}},
          .snapshot = std::make_shared<v1::ShardSnapshot>(
              MakeSnapshot(static_cast<uint64_t>(elements), elements, part.version()))};
}

TEST_CASE("CheckpointWriter: two servers' parts become one checkpoint, read shard by shard",
          "[server][storage]") {
  SimDisk disk(1);
  v1::CheckpointManifest manifest = MakeManifest(5);
  v1::CheckpointOrder order;
  order.set_checkpoint_id(5);
  order.set_folder("f/checkpoint-5");
  // One server has the first and the last shard, the other the one between.
  const std::vector<std::vector<int>> servers = {{0, 2}, {1}};
  for (const std::vector<int>& shards : servers) {
    CheckpointWriter writer(&disk, nullptr);
    std::vector<CapturedShard> captured;
    for (const int i : shards) captured.push_back(Captured(manifest.parts(i)));
    absl::StatusOr<std::vector<v1::CheckpointPart>> parts = absl::UnknownError("not called");
    absl::Notification written;
    writer.Write("job-1", order, std::move(captured), [&](const auto& result) {
      parts = result;
      written.Notify();
    });
    written.WaitForNotification();
    REQUIRE_OK(parts);
    REQUIRE(parts->size() == shards.size());
    for (size_t i = 0; i < shards.size(); ++i) *manifest.mutable_parts(shards[i]) = (*parts)[i];
  }
  REQUIRE_OK(WriteManifest(disk, order.folder(), manifest));
  disk.Crash(SimDisk::Unsynced::kLost);
  REQUIRE_OK(VerifyCheckpoint(disk, order.folder()));

  DiskTableSource source(&disk, nullptr);
  for (const v1::CheckpointPart& part : manifest.parts()) {
    REQUIRE_OK_AND_ASSIGN(
        const v1::ShardSnapshot snapshot,
        source.FromCheckpoint(order.folder(), {TableId(part.table()), ShardId(part.shard())}));
    CHECK(snapshot.DebugString() == Captured(part).snapshot->DebugString());
  }
  CHECK_STATUS(source.FromCheckpoint(order.folder(), {TableId(1), ShardId(1)}),
               absl::StatusCode::kNotFound, "no table 1 shard 1");
  CHECK_STATUS(source.FromCheckpoint("f/checkpoint-6", {TableId(0), ShardId(0)}),
               absl::StatusCode::kNotFound, "f/checkpoint-6/manifest.pb");
  disk.FlipBit("f/checkpoint-5/table-0-shard-1.part", 999);
  CHECK_STATUS(source.FromCheckpoint(order.folder(), {TableId(0), ShardId(1)}),
               absl::StatusCode::kDataLoss, "table-0-shard-1.part");
}

TEST_CASE("DiskTableSource: a folder that holds another checkpoint by now is read anew",
          "[server][storage]") {
  SimDisk disk(1);
  DiskTableSource source(&disk, nullptr);
  const ShardKey first{TableId(0), ShardId(0)};
  v1::CheckpointOrder order;
  order.set_checkpoint_id(5);
  order.set_folder("f/checkpoint-5");
  REQUIRE_OK(capstan::testing::WriteTestCheckpoint(disk, "f", 5));
  REQUIRE_OK(source.FromCheckpoint(order.folder(), first));
  // Another job's, which was given the same folder once this one was gone.
  REQUIRE_OK(RemoveCheckpoint(disk, order.folder()));
  std::vector<TaskRunner::Task> tasks;
  CheckpointWriter writer(&disk, [&](TaskRunner::Task task) { tasks.push_back(std::move(task)); });
  v1::CheckpointManifest other = MakeManifest(5);
  const CapturedShard captured = Captured(other.parts(0));
  other.set_job_id("job-2");
  writer.Write("job-2", order, {captured}, [&](const auto& parts) {
    REQUIRE_OK(parts);
    *other.mutable_parts(0) = parts->front();
  });
  tasks.front()();
  REQUIRE_OK(WriteManifest(disk, order.folder(), other));
  source.BeginMaking();
  REQUIRE_OK_AND_ASSIGN(const v1::ShardSnapshot snapshot,
                        source.FromCheckpoint(order.folder(), first));
  CHECK(snapshot.DebugString() == captured.snapshot->DebugString());
}

TEST_CASE("DiskTableSource: what this host does not have is read from the scheduler's",
          "[server][storage]") {
  SimDisk own(1);
  SimDisk schedulers(2);
  REQUIRE_OK(capstan::testing::WriteTestCheckpoint(schedulers, "f", 5));
  REQUIRE_OK_AND_ASSIGN(const v1::CheckpointManifest manifest,
                        ReadManifest(schedulers, "f/checkpoint-5"));
  SECTION("there is no such folder here") {}
  SECTION("the folder of that name is of another checkpoint") {
    REQUIRE_OK(capstan::testing::WriteTestCheckpoint(own, "g", 4));
    REQUIRE_OK(own.MakeFolder("f/checkpoint-5"));
    REQUIRE_OK_AND_ASSIGN(const std::vector<std::string> names, own.List("g/checkpoint-4"));
    for (const std::string& name : names) {
      const std::string bytes = own.Read("g/checkpoint-4/" + name, 1 << 20).value();
      REQUIRE_OK(WriteDurably(own, "f/checkpoint-5/" + name, {bytes}));
    }
  }
  SECTION("a part of it is here") {
    REQUIRE_OK(capstan::testing::WriteTestCheckpoint(own, "f", 5));
    REQUIRE_OK(own.Remove("f/checkpoint-5/" + manifest.parts(1).file()));
    REQUIRE_OK(own.Remove("f/checkpoint-5/manifest.pb"));
  }
  DiskTableSource source(&own, nullptr, &schedulers);
  for (const v1::CheckpointPart& part : manifest.parts()) {
    REQUIRE_OK_AND_ASSIGN(
        const v1::ShardSnapshot snapshot,
        source.FromCheckpoint("f/checkpoint-5", {TableId(part.table()), ShardId(part.shard())}));
    REQUIRE_OK_AND_ASSIGN(const v1::ShardSnapshot expected,
                          ReadPart(schedulers, "f/checkpoint-5", manifest.job_id(), part));
    CHECK(snapshot.DebugString() == expected.DebugString());
  }
}

TEST_CASE("CheckpointWriter: a full disk is reported", "[server][storage]") {
  SimDisk disk(1);
  disk.SetCapacity(500);
  std::vector<TaskRunner::Task> tasks;
  CheckpointWriter writer(&disk, [&](TaskRunner::Task task) { tasks.push_back(std::move(task)); });
  const v1::CheckpointManifest manifest = MakeManifest(5);
  v1::CheckpointOrder order;
  order.set_folder("f/checkpoint-5");
  std::optional<absl::Status> result;
  writer.Write("job-1", order, {Captured(manifest.parts(0)), Captured(manifest.parts(1))},
               [&](const auto& parts) { result = parts.status(); });
  CHECK_FALSE(result.has_value());
  REQUIRE(tasks.size() == 1);
  tasks[0]();
  REQUIRE(result.has_value());
  CHECK_STATUS(*result, absl::StatusCode::kResourceExhausted, "table-0-shard-1.part");
}

struct Collector final : ShardReader {
  absl::Status Install(const v1::ShardSnapshot& snapshot) override {
    positions.push_back(snapshot.position());
    return absl::OkStatus();
  }
  absl::Status Replay(const v1::ShardRecord& record) override {
    if (record.position() == refused) return absl::DataLossError("it does not follow");
    positions.push_back(record.position());
    return absl::OkStatus();
  }
  int64_t refused = -1;
  std::vector<int64_t> positions;
};

TEST_CASE("DiskTableSource: a shard is read from the log up to where its reader objects",
          "[server][storage]") {
  SimDisk disk(1);
  std::vector<TaskRunner::Task> tasks;
  ServerLog::Options options;
  options.disk = &disk;
  options.folder = "logs";
  options.execute = [&](TaskRunner::Task task) { tasks.push_back(std::move(task)); };
  options.on_logged = [](const JobId&, const std::string&, const ShardKey&, Term, Position) {};
  options.on_failed = [](const JobId&, const std::string&, const absl::Status&) {};
  ServerLog log(options);
  REQUIRE_OK(log.Open());
  const ShardKey shard{TableId(0), ShardId(0)};
  log.Begin("job-1", shard, Term(1),
            std::make_shared<v1::ShardSnapshot>(testing::FixtureSnapshot(7, 1, 10)), nullptr);
  for (const int64_t i : {8, 9, 10}) {
    log.Append("job-1", shard, Term(1),
               std::make_shared<v1::ShardRecord>(testing::FixtureRecord(i, 1, 10)));
  }
  tasks.front()();

  DiskTableSource source(&disk, &log);
  Collector all;
  REQUIRE_OK(source.FromLog("job-1", shard, all));
  CHECK(all.positions == std::vector<int64_t>{7, 8, 9, 10});
  Collector some;
  some.refused = 9;
  CHECK_STATUS(source.FromLog("job-1", shard, some), absl::StatusCode::kDataLoss, "not follow");
  CHECK(some.positions == std::vector<int64_t>{7, 8});
  CHECK_STATUS(source.FromLog("job-2", shard, all), absl::StatusCode::kNotFound, "job-2");
  DiskTableSource without(&disk, nullptr);
  CHECK_STATUS(without.FromLog("job-1", shard, all), absl::StatusCode::kNotFound, "no logs");
}

}  // namespace
}  // namespace capstan::server::disk_table_source_test
