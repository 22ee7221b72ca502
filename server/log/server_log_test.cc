#include "server/log/server_log.h"

#include <catch2/catch.hpp>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/storage/posix_disk.h"
#include "common/storage/testing/sim_disk.h"
#include "common/storage/write_durably.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"
#include "server/log/testing/log_fixture.h"

namespace capstan::server::server_log_test {
namespace {

using testing::FixtureRecord;
using testing::FixtureSnapshot;

const ShardKey kA{TableId(0), ShardId(0)};
const ShardKey kB{TableId(0), ShardId(1)};

std::shared_ptr<const v1::ShardSnapshot> Snapshot(int64_t position) {
  return std::make_shared<v1::ShardSnapshot>(FixtureSnapshot(position, 1, 100));
}
std::shared_ptr<const v1::ShardRecord> Record(int64_t position) {
  return std::make_shared<v1::ShardRecord>(
      FixtureRecord(position, static_cast<uint64_t>(position), 100));
}

// A log whose groups are written when the test says so.
struct Fixture {
  explicit Fixture(uint64_t seed = 1) : disk(seed) {}
  ServerLog::Options Options() {
    ServerLog::Options options;
    options.disk = &disk;
    options.folder = "logs";
    options.execute = [this](TaskRunner::Task task) { tasks.push_back(std::move(task)); };
    options.on_logged = [this](const JobId& job, const std::string& unique_id,
                               const ShardKey& shard, Term term, Position at) {
      reporting.insert(unique_id);
      logged.push_back(
          absl::StrCat(job, "/", shard.shard.value(), " ", term.value(), ":", at.value()));
    };
    options.on_failed = [this](const JobId& job, const std::string& unique_id,
                               const absl::Status& status) {
      reporting.insert(unique_id);
      failed.push_back(absl::StrCat(job, " ", status.message()));
    };
    return options;
  }
  void Open() { Open(Options()); }
  void Open(const ServerLog::Options& options) {
    tasks.clear();
    log = std::make_unique<ServerLog>(options);
    REQUIRE_OK(log->Open());
  }
  void RunTasks() {
    while (!tasks.empty()) {
      const TaskRunner::Task task = std::move(tasks.front());
      tasks.pop_front();
      task();
    }
  }
  std::vector<std::string> Stored() {
    std::vector<std::string> stored;
    for (const v1::StoredShard& shard : log->Stored()) {
      stored.push_back(absl::StrCat(shard.job_id(), "/", shard.shard(), " ", shard.term(), ":",
                                    shard.position()));
    }
    return stored;
  }
  // "<job> <unique id> <record>[ <damage>]" of each.
  std::vector<std::string> Logs() {
    std::vector<std::string> logs;
    for (const v1::KeptLog& kept : log->Logs()) {
      logs.push_back(absl::StrCat(kept.job_id(), " ", kept.unique_id(), " ", kept.record(),
                                  kept.damage().empty() ? "" : " ", kept.damage()));
    }
    return logs;
  }
  std::vector<std::string> Logged() { return std::exchange(logged, {}); }

  SimDisk disk;
  std::deque<TaskRunner::Task> tasks;
  std::vector<std::string> logged;
  std::set<std::string> reporting;  // Unique ids in on_logged and on_failed.
  std::vector<std::string> failed;
  std::unique_ptr<ServerLog> log;
};

using Strings = std::vector<std::string>;

TEST_CASE("ServerLog: a group is one sync a job, and tells the last position of each shard",
          "[server][storage]") {
  Fixture f;
  f.Open();
  f.log->Begin("job-1", kA, Term(1), Snapshot(0), nullptr);
  f.log->Begin("job-2", kA, Term(4), Snapshot(7), nullptr);
  f.RunTasks();
  CHECK(f.Logged() == Strings{"job-1/0 1:0", "job-2/0 4:7"});
  const int64_t before = f.disk.steps();
  for (int64_t i = 1; i <= 50; ++i) f.log->Append("job-1", kA, Term(1), Record(i));
  f.log->Begin("job-1", kB, Term(1), Snapshot(3), nullptr);
  CHECK(f.logged.empty());
  f.RunTasks();
  CHECK(f.Logged() == Strings{"job-1/0 1:50", "job-1/1 1:3"});
  CHECK(f.disk.steps() - before == 3);  // A write, a sync, a frame that says so.
  CHECK(f.Stored() == Strings{"job-1/0 1:50", "job-1/1 1:3", "job-2/0 4:7"});

  f.disk.Crash(SimDisk::Unsynced::kLost);
  f.Open();
  CHECK(f.Stored() == Strings{"job-1/0 1:50", "job-1/1 1:3", "job-2/0 4:7"});
  int64_t last = 0;
  REQUIRE_OK(f.log->Read(
      "job-1", kA, [&](const v1::ShardSnapshot&) { return absl::OkStatus(); },
      [&](const v1::ShardRecord& record) {
        last = record.position();
        return absl::OkStatus();
      }));
  CHECK(last == 50);
  CHECK_STATUS(f.log->Read("job-3", kA, nullptr, nullptr), absl::StatusCode::kNotFound, "job-3");
}

// Rows of a bucket that come in two pieces, or are there no more.
class TestRows final : public CapturedRows {
 public:
  explicit TestRows(absl::Status end = absl::OkStatus()) : end_(std::move(end)) {}
  absl::StatusOr<std::optional<v1::ShardSnapshot>> Next() override {
    if (read_ == 2 && !end_.ok()) return end_;
    if (read_ == 2) return std::nullopt;
    v1::ShardSnapshot piece;
    piece.set_values(absl::StrCat("rows ", read_++));
    return piece;
  }

 private:
  const absl::Status end_;
  int read_ = 0;
};

TEST_CASE("ServerLog: rows of a snapshot are read when it is written", "[server][storage]") {
  Fixture f;
  f.Open();
  std::vector<std::string> rows;
  const auto read = [&](const v1::ShardSnapshot& snapshot) {
    for (const v1::ShardSnapshot& piece : snapshot.pieces()) rows.push_back(piece.values());
    return absl::OkStatus();
  };
  const auto replay = [](const v1::ShardRecord&) { return absl::OkStatus(); };
  SECTION("and lie with it") {
    f.log->Begin("job-1", kA, Term(1), Snapshot(0), std::make_shared<TestRows>());
    f.log->Append("job-1", kA, Term(1), Record(1));
    f.RunTasks();
    CHECK(f.Logged() == Strings{"job-1/0 1:1"});
    REQUIRE_OK(f.log->Read("job-1", kA, read, replay));
    CHECK(rows == Strings{"rows 0", "rows 1"});
  }
  SECTION("where the shard is held no more, what follows counts no more until it begins again") {
    f.log->Begin("job-1", kA, Term(1), Snapshot(0), std::make_shared<TestRows>());
    f.RunTasks();
    f.Logged();
    f.log->Begin("job-1", kA, Term(2), Snapshot(5),
                 std::make_shared<TestRows>(absl::AbortedError("held no more")));
    f.log->Append("job-1", kA, Term(2), Record(6));
    f.log->Continue("job-1", kA, Term(3), Position(6));
    f.log->Append("job-1", kA, Term(3), Record(7));
    f.RunTasks();
    CHECK(f.Logged().empty());
    CHECK(f.failed.empty());
    CHECK(f.Stored() == Strings{"job-1/0 1:0"});  // The log is as before.
    f.log->Begin("job-1", kA, Term(4), Snapshot(8), nullptr);
    f.log->Append("job-1", kA, Term(4), Record(9));
    f.RunTasks();
    CHECK(f.Logged() == Strings{"job-1/0 4:9"});
    CHECK(f.failed.empty());
  }
  SECTION("... or until it is made from what there is") {
    f.log->Begin("job-1", kA, Term(1), Snapshot(0), nullptr);
    f.log->Begin("job-1", kA, Term(2), Snapshot(5),
                 std::make_shared<TestRows>(absl::AbortedError("held no more")));
    f.RunTasks();
    f.Logged();
    REQUIRE_OK(f.log->Read("job-1", kA, read, replay));
    f.log->Continue("job-1", kA, Term(3), Position(0));
    f.log->Append("job-1", kA, Term(3), Record(1));
    f.RunTasks();
    CHECK(f.Logged() == Strings{"job-1/0 3:1"});
  }
  SECTION("... also if that was still to be written when it is read") {
    f.log->Begin("job-1", kA, Term(1), Snapshot(0), nullptr);
    f.RunTasks();
    f.Logged();
    f.log->Begin("job-1", kA, Term(2), Snapshot(5),
                 std::make_shared<TestRows>(absl::AbortedError("held no more")));
    REQUIRE_OK(f.log->Read("job-1", kA, read, replay));
    f.log->Continue("job-1", kA, Term(3), Position(0));
    f.RunTasks();
    CHECK(f.Logged() == Strings{"job-1/0 3:0"});
  }
  SECTION("what cannot be read fails the job's log") {
    f.log->Begin("job-1", kA, Term(1), Snapshot(0),
                 std::make_shared<TestRows>(absl::DataLossError("row 7 is damaged")));
    f.RunTasks();
    CHECK(f.Logged().empty());
    REQUIRE(f.failed.size() == 1);
    CHECK_THAT(f.failed[0], Catch::Contains("row 7 is damaged"));
  }
}

TEST_CASE("ServerLog: a shard or job that is to be held no more leaves nothing",
          "[server][storage]") {
  Fixture f;
  f.Open();
  f.log->Begin("job-1", kA, Term(1), Snapshot(0), nullptr);
  f.log->Begin("job-1", kB, Term(1), Snapshot(0), nullptr);
  f.log->Begin("job-2", kA, Term(1), Snapshot(0), nullptr);
  f.log->Forget("job-1", kA);
  f.RunTasks();
  CHECK(f.Logged() == Strings{"job-1/1 1:0", "job-2/0 1:0"});
  f.log->Append("job-1", kB, Term(1), Record(1));
  f.log->ForgetJob("job-1");
  f.RunTasks();
  CHECK(f.Logged().empty());
  CHECK(f.Stored() == Strings{"job-2/0 1:0"});
  CHECK(f.disk.List("logs/job-1").status().code() == absl::StatusCode::kNotFound);
  f.log->Begin("job-1", kA, Term(9), Snapshot(5), nullptr);  // The job comes back.
  f.RunTasks();
  f.Open();
  CHECK(f.Stored() == Strings{"job-1/0 9:5", "job-2/0 1:0"});
}

TEST_CASE("ServerLog: a later job of the same id meets no log but its own (issue 20)",
          "[server][storage]") {
  Fixture f;
  f.Open();
  f.log->Identify("job-1", "aa-1");
  f.log->Begin("job-1", kA, Term(3), Snapshot(7), nullptr);
  f.RunTasks();
  f.Open();  // The scheduler's store is gone: its next job is job-1 again.
  f.log->Identify("job-1", "bb-2");
  CHECK_STATUS(f.log->Read("job-1", kA, nullptr, nullptr), absl::StatusCode::kNotFound, "job-1");
  f.log->Begin("job-1", kB, Term(1), Snapshot(0), nullptr);
  f.RunTasks();
  f.Open();
  std::vector<std::string> unique_ids;
  for (const v1::StoredShard& shard : f.log->Stored()) unique_ids.push_back(shard.unique_id());
  CHECK(f.Stored() == Strings{"job-1/0 3:7", "job-1/1 1:0"});
  CHECK(unique_ids == Strings{"aa-1", "bb-2"});
  f.log->Identify("job-1", "bb-2");
  f.log->ForgetJob("job-1");
  f.RunTasks();
  CHECK(f.Stored() == Strings{"job-1/0 3:7"});
  CHECK(f.disk.List("logs").value() == Strings{"job-1.aa-1"});
}

TEST_CASE("ServerLog: reports name the job that was written, though another has its id by now",
          "[server][storage]") {
  Fixture f;
  f.Open();
  f.log->Identify("job-1", "aa-1");
  f.log->Begin("job-1", kA, Term(1), Snapshot(7), nullptr);
  f.log->Identify("job-1", "bb-2");
  f.RunTasks();
  CHECK(f.reporting == std::set<std::string>{"aa-1"});
  f.log->Begin("job-1", kA, Term(1), Snapshot(0), nullptr);
  f.RunTasks();
  f.reporting.clear();
  f.log->Append("job-1", kA, Term(1), Record(1));
  f.log->Identify("job-1", "cc-3");
  f.disk.FailAt(f.disk.steps(), SimDisk::Fault::kDiskFull);
  f.RunTasks();
  CHECK(f.failed.size() == 1);
  CHECK(f.reporting == std::set<std::string>{"bb-2"});
}

TEST_CASE("ServerLog: the record of where a job stands is kept beside its log (issue 20)",
          "[server][storage]") {
  Fixture f;
  f.Open();
  f.log->Identify("job-1", "aa-1");
  f.log->KeepRecord("job-1", "first");
  f.log->Begin("job-1", kA, Term(1), Snapshot(0), nullptr);
  f.RunTasks();
  CHECK(f.Logs() == Strings{"job-1 aa-1 first"});
  f.log->KeepRecord("job-1", "second");
  f.RunTasks();
  f.Open();
  CHECK(f.Logs() == Strings{"job-1 aa-1 second"});
  CHECK(f.Stored() == Strings{"job-1/0 1:0"});
  SECTION("it goes with the log") {
    f.log->Identify("job-1", "aa-1");
    f.log->ForgetJob("job-1");
    f.RunTasks();
    CHECK(f.Logs().empty());
    CHECK(f.disk.List("logs/job-1.aa-1").status().code() == absl::StatusCode::kNotFound);
  }
  SECTION("damage to it is told") {
    REQUIRE_OK(WriteDurably(f.disk, "logs/job-1.aa-1/record", {"CAPREC01 no record"}));
    CHECK(f.Logs() == Strings{"job-1 aa-1  logs/job-1.aa-1/record: 18 bytes that are no record "
                              "with its checksum"});
  }
  SECTION("damage to the log is told, and the record stays beside a log that is begun anew") {
    const std::string segment = "logs/job-1.aa-1/" + f.disk.List("logs/job-1.aa-1")->back();
    REQUIRE_OK_AND_ASSIGN(std::string bytes, f.disk.Read(segment, 10'000));
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    REQUIRE_OK(WriteDurably(f.disk, segment, {bytes}));
    f.Open();
    const std::vector<std::string> told = f.Logs();
    REQUIRE(told.size() == 1);
    CHECK_THAT(told[0], Catch::StartsWith("job-1 aa-1 second " + segment));
    f.log->Identify("job-1", "aa-1");
    f.log->KeepRecord("job-1", "third");
    f.log->Begin("job-1", kA, Term(2), Snapshot(3), nullptr);
    f.RunTasks();
    CHECK(f.Logs() == Strings{"job-1 aa-1 third"});
  }
}

TEST_CASE("ServerLog: a log that cannot be listed is told, not passed over (issue 20)",
          "[server][storage]") {
  size_t unreadable = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Fixture f(seed);
    f.Open();
    f.log->Begin("job-1", kA, Term(1), Snapshot(0), nullptr);
    f.RunTasks();
    REQUIRE_OK(f.disk.Create("logs/lock"));
    SimDisk::Rates rates;
    rates.read_error = 0.3;
    f.disk.SetRates(rates);
    ServerLog log(f.Options());
    if (!log.Open().ok()) continue;
    INFO("seed " << seed);
    REQUIRE(log.Stored().size() + log.Unreadable().size() == 1);
    unreadable += log.Unreadable().size();
  }
  CHECK(unreadable > 0);
}

TEST_CASE("ServerLog: a job whose log fails is told once; others go on", "[server][storage]") {
  Fixture f;
  f.Open();
  f.log->Begin("job-1", kA, Term(1), Snapshot(0), nullptr);
  f.log->Begin("job-2", kA, Term(1), Snapshot(0), nullptr);
  f.RunTasks();
  f.Logged();
  f.disk.FailAt(f.disk.steps() + 1, SimDisk::Fault::kSyncError);
  f.log->Append("job-1", kA, Term(1), Record(1));
  f.log->Append("job-2", kA, Term(1), Record(1));
  f.RunTasks();
  CHECK(f.Logged() == Strings{"job-2/0 1:1"});
  REQUIRE(f.failed.size() == 1);
  CHECK_THAT(f.failed[0], Catch::StartsWith("job-1 the write-ahead log has failed: cannot sync"));
  f.log->Append("job-1", kA, Term(1), Record(2));
  f.log->Append("job-2", kA, Term(1), Record(2));
  f.RunTasks();
  CHECK(f.Logged() == Strings{"job-2/0 1:2"});
  // Whoever gave it that record may be another than he who was told.
  CHECK(f.failed == Strings(2, f.failed[0]));
  CHECK(f.Stored() == Strings{"job-1/0 1:0", "job-2/0 1:2"});
}

TEST_CASE("ServerLog: a log that has failed is read again, and takes records from there",
          "[server][storage]") {
  Fixture f;
  f.Open();
  for (const char* job : {"job-1", "job-2"}) f.log->Begin(job, kA, Term(1), Snapshot(0), nullptr);
  f.log->Append("job-1", kA, Term(1), Record(1));
  f.RunTasks();
  f.disk.FailAt(f.disk.steps(), SimDisk::Fault::kDiskFull);
  f.log->Append("job-1", kA, Term(1), Record(2));
  f.RunTasks();
  REQUIRE(f.failed.size() == 1);
  CHECK_THAT(f.failed[0], Catch::Contains("no space left"));
  f.log->ReopenFailed();
  CHECK(f.Stored() == Strings{"job-1/0 1:1", "job-2/0 1:0"});
  f.Logged();
  f.log->Append("job-1", kA, Term(1), Record(2));
  f.log->Append("job-2", kA, Term(1), Record(1));
  f.RunTasks();
  CHECK(f.failed.size() == 1);
  CHECK(f.Logged() == Strings{"job-1/0 1:2", "job-2/0 1:1"});
  f.disk.Crash(SimDisk::Unsynced::kLost);
  f.Open();
  CHECK(f.Stored() == Strings{"job-1/0 1:2", "job-2/0 1:1"});
}

TEST_CASE("ServerLog: the first thing that fails in a group is what is told", "[server][storage]") {
  size_t failed = 0;
  for (int step = 0; step < 4; ++step) {
    Fixture f;
    f.Open();
    f.disk.FailAt(f.disk.steps() + step, SimDisk::Fault::kWriteError);
    f.log->Begin("job-1", kA, Term(1), Snapshot(0), nullptr);
    f.log->Begin("job-1", kB, Term(1), Snapshot(0), nullptr);
    f.log->Append("job-1", kA, Term(1), Record(1));
    f.RunTasks();
    CHECK(f.failed.empty() == !f.logged.empty());
    failed += f.failed.size();
    for (const std::string& why : f.failed) CHECK_THAT(why, !Catch::Contains("expected"));
  }
  CHECK(failed > 0);
}

TEST_CASE("ServerLog: a damaged log is named, kept, and gives way to a new one",
          "[server][storage]") {
  Fixture f;
  f.Open();
  f.log->Begin("job-1", kA, Term(1), Snapshot(0), nullptr);
  f.log->Begin("job-2", kA, Term(1), Snapshot(0), nullptr);
  f.RunTasks();
  f.disk.FlipBit("logs/job-1/segment-0000000001.log", 8 * 60);
  f.Open();
  CHECK(f.Stored() == Strings{"job-2/0 1:0"});
  REQUIRE(f.log->Unreadable().size() == 1);
  CHECK(f.log->Unreadable()[0].first == "job-1");
  CHECK_STATUS(f.log->Read("job-1", kA, nullptr, nullptr), absl::StatusCode::kDataLoss,
               "logs/job-1/segment-0000000001.log");
  f.log->Begin("job-1", kA, Term(2), Snapshot(0), nullptr);
  f.RunTasks();
  CHECK(f.log->Unreadable().empty());
  CHECK(f.failed.empty());
  f.Open();
  CHECK(f.Stored() == Strings{"job-1/0 2:0", "job-2/0 1:0"});
}

TEST_CASE("ServerLog: logs that a full disk keeps from being opened wait for space",
          "[server][storage]") {
  Fixture f;
  f.Open();
  f.log->Begin("job-1", kA, Term(1), Snapshot(0), nullptr);
  f.RunTasks();
  const int64_t first = f.disk.bytes();
  f.log->Begin("job-2", kA, Term(1), Snapshot(0), nullptr);
  for (int shard = 1; shard < 50; ++shard) {
    f.log->Begin("job-2", {kA.table, ShardId(shard)}, Term(1), Snapshot(0), nullptr);
  }
  f.RunTasks();
  CHECK(f.log->SpaceAwaited() == std::nullopt);
  const int64_t bytes = f.disk.bytes();
  f.disk.SetCapacity(bytes + 10);
  f.Open();
  CHECK(f.log->Stored().empty());
  REQUIRE(f.log->SpaceAwaited() > 0);
  CHECK(f.disk.bytes() == bytes);
  // Room for one of them, then for both.
  f.disk.SetCapacity(bytes + 2 * first);
  f.log->ReopenFailed();
  CHECK(f.log->Stored().size() == 1);
  CHECK(f.log->SpaceAwaited() > 0);
  f.disk.SetCapacity(4 * bytes);
  f.log->ReopenFailed();
  CHECK(f.log->Stored().size() == 51);
  CHECK(f.log->SpaceAwaited() == std::nullopt);
}

TEST_CASE("ServerLog: a queue that the disk does not keep up with fails its job",
          "[server][storage]") {
  Fixture f;
  ServerLog::Options options = f.Options();
  options.queue_bytes_max = 1000;
  f.Open(options);
  f.log->Begin("job-1", kA, Term(1), Snapshot(0), nullptr);
  for (int64_t i = 1; i <= 20; ++i) f.log->Append("job-1", kA, Term(1), Record(i));
  f.RunTasks();
  REQUIRE(f.failed.size() == 1);
  CHECK_THAT(f.failed[0], Catch::Contains("more than 1000 bytes waiting for the disk"));
  for (const std::string& logged : f.Logged()) CHECK(logged != "job-1/0 1:20");
}

// A new incarnation of a server makes shards from the log while entries of the last one may be
// queued.
TEST_CASE("ServerLog: who reads waits for what is queued", "[server][storage]") {
  PosixDisk disk;
  absl::Notification release;
  ServerLog::Options options;
  options.disk = &disk;
  options.folder = capstan::testing::TestPath("logs");
  options.on_logged = [&](const JobId&, const std::string&, const ShardKey&, Term, Position) {
    release.WaitForNotification();  // The next group is not written yet.
  };
  options.on_failed = [](const JobId&, const std::string&, const absl::Status&) {};
  ServerLog log(options);
  REQUIRE_OK(log.Open());
  log.Begin("job-1", kA, Term(1), Snapshot(0), nullptr);
  REQUIRE_OK(log.Read(
      "job-1", kA, [](const auto&) { return absl::OkStatus(); },
      [](const auto&) { return absl::OkStatus(); }));
  log.Begin("job-1", kA, Term(1), Snapshot(7), nullptr);
  std::thread releaser([&release] { release.Notify(); });
  int64_t read = -1;
  const absl::Status status = log.Read(
      "job-1", kA,
      [&read](const v1::ShardSnapshot& base) {
        read = base.position();
        return absl::OkStatus();
      },
      [](const auto&) { return absl::OkStatus(); });
  releaser.join();
  REQUIRE_OK(status);
  CHECK(read == 7);
}

TEST_CASE("ServerLog: its own thread writes what is queued, also while it stops",
          "[server][storage]") {
  PosixDisk disk;
  absl::Mutex mutex;
  int64_t last = -1;
  ServerLog::Options options;
  options.disk = &disk;
  options.folder = capstan::testing::TestPath("logs");
  options.on_logged = [&](const JobId&, const std::string&, const ShardKey&, Term,
                          Position position) {
    const absl::MutexLock lock(&mutex);
    last = position.value();
  };
  options.on_failed = [](const JobId&, const std::string&, const absl::Status&) {};
  {
    ServerLog log(options);
    REQUIRE_OK(log.Open());
    log.Begin("job-1", kA, Term(1), Snapshot(0), nullptr);
    for (int64_t i = 1; i <= 500; ++i) {
      log.Append("job-1", kA, Term(1), Record(i));
      if (i != 250) continue;
      const auto reached = [&] { return last >= 1; };
      const absl::MutexLock lock(&mutex);
      mutex.Await(absl::Condition(&reached));
    }
    log.Stop();
    log.Append("job-1", kA, Term(1), Record(501));  // Too late.
  }
  CHECK(last == 500);
  ServerLog log(options);
  REQUIRE_OK(log.Open());
  CHECK(log.Stored().at(0).position() == 500);
}

}  // namespace
}  // namespace capstan::server::server_log_test
