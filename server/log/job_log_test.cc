#include "server/log/job_log.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "common/storage/posix_disk.h"
#include "common/storage/testing/sim_disk.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"
#include "server/log/testing/log_fixture.h"

namespace capstan::server::job_log_test {
namespace {

using testing::FixtureRecord;
using testing::FixtureSnapshot;
using testing::LogFixture;
using testing::LogState;
using testing::ReadState;
using Fault = SimDisk::Fault;
using Unsynced = SimDisk::Unsynced;

const ShardKey kA{TableId(0), ShardId(0)};
const ShardKey kB{TableId(0), ShardId(1)};

std::unique_ptr<JobLog> Open(Disk& disk, int64_t segment_bytes_max = 1 << 20,
                             const std::string& folder = "log/job-1") {
  JobLog::Options options;
  options.segment_bytes_max = segment_bytes_max;
  REQUIRE_OK_AND_ASSIGN(std::unique_ptr<JobLog> log, JobLog::Open(&disk, folder, options));
  return log;
}

TEST_CASE("JobLog: what was committed is read again, by a log opened anew too",
          "[server][storage]") {
  std::unique_ptr<Disk> disk;
  std::string folder = "log/job-1";
  SECTION("simulated") { disk = std::make_unique<SimDisk>(1); }
  SECTION("real") {
    disk = std::make_unique<PosixDisk>();
    folder = capstan::testing::TestPath("log/job-1");
  }
  std::unique_ptr<JobLog> log = Open(*disk, 1 << 20, folder);
  CHECK(log->Stored().empty());
  log->Begin(kA, Term(3), FixtureSnapshot(10, 1, 500));
  log->Append(kA, Term(3), FixtureRecord(11, 2, 500));
  CHECK(log->Stored().empty());  // Nothing is committed yet.
  REQUIRE_OK(log->Commit());
  log->Begin(kB, Term(1), FixtureSnapshot(0, 3, 5));
  log->Append(kA, Term(3), FixtureRecord(12, 4, 500));
  REQUIRE_OK(log->Commit());
  REQUIRE_OK(log->Commit());  // Nothing to do.
  const std::vector<StoredState> stored = {{kA, Term(3), Position(12)}, {kB, Term(1), Position(0)}};
  CHECK(log->Stored() == stored);
  REQUIRE_OK_AND_ASSIGN(const LogState before, ReadState(*log));
  for (int i = 0; i < 3; ++i) {
    log.reset();
    log = Open(*disk, 1 << 20, folder);
    CHECK(log->Stored() == stored);
    REQUIRE_OK_AND_ASSIGN(const LogState after, ReadState(*log));
    CHECK(after == before);
  }
  log->Append(kA, Term(3), FixtureRecord(13, 5, 500));
  log->Forget(kB);
  REQUIRE_OK(log->Commit());
  CHECK(log->Stored() == std::vector<StoredState>{{kA, Term(3), Position(13)}});
  CHECK_STATUS(log->Read(kB, nullptr, nullptr), absl::StatusCode::kNotFound,
               "does not hold table 0 shard 1");
  log = Open(*disk, 1 << 20, folder);
  CHECK(log->Stored() == std::vector<StoredState>{{kA, Term(3), Position(13)}});
  log.reset();
  REQUIRE_OK(JobLog::Remove(*disk, folder));
  REQUIRE_OK(JobLog::Remove(*disk, folder));
  CHECK(Open(*disk, 1 << 20, folder)->Stored().empty());
}

TEST_CASE("JobLog: a later Begin replaces all, whatever its term and position",
          "[server][storage]") {
  SimDisk disk(1);
  std::unique_ptr<JobLog> log = Open(disk);
  log->Begin(kA, Term(9), FixtureSnapshot(100, 1, 10));
  log->Append(kA, Term(9), FixtureRecord(101, 2, 10));
  log->Begin(kA, Term(2), FixtureSnapshot(5, 3, 10));
  REQUIRE_OK(log->Commit());
  CHECK(log->Stored() == std::vector<StoredState>{{kA, Term(2), Position(5)}});
  CHECK(Open(disk)->Stored() == std::vector<StoredState>{{kA, Term(2), Position(5)}});
}

TEST_CASE("JobLog: a record that does not follow fails it", "[server][storage]") {
  SimDisk disk(1);
  std::unique_ptr<JobLog> log = Open(disk);
  SECTION("no base") { log->Append(kA, Term(1), FixtureRecord(1, 1, 1)); }
  SECTION("a gap") {
    log->Begin(kA, Term(1), FixtureSnapshot(0, 1, 10));
    log->Append(kA, Term(1), FixtureRecord(2, 1, 1));
  }
  SECTION("another term") {
    log->Begin(kA, Term(1), FixtureSnapshot(0, 1, 10));
    log->Append(kA, Term(2), FixtureRecord(1, 1, 1));
  }
  CHECK_STATUS(log->Commit(), absl::StatusCode::kInternal, "table 0 shard 0");
}

TEST_CASE("JobLog: after a failed write or sync it is failed for good", "[server][storage]") {
  for (const Fault fault : {Fault::kSyncError, Fault::kDiskFull, Fault::kWriteError}) {
    SimDisk disk(1);
    std::unique_ptr<JobLog> log = Open(disk);
    log->Begin(kA, Term(1), FixtureSnapshot(0, 1, 10));
    REQUIRE_OK(log->Commit());
    log->Append(kA, Term(1), FixtureRecord(1, 1, 100));
    disk.FailAt(disk.steps() + (fault == Fault::kSyncError ? 1 : 0), fault);
    const absl::Status status = log->Commit();
    CHECK_STATUS(status,
                 fault == Fault::kDiskFull ? absl::StatusCode::kResourceExhausted
                                           : absl::StatusCode::kUnavailable,
                 "the write-ahead log has failed");
    log->Append(kA, Term(1), FixtureRecord(2, 1, 100));
    CHECK(log->Commit() == status);
    CHECK(log->Stored() == std::vector<StoredState>{{kA, Term(1), Position(0)}});
    log.reset();
    disk.Crash(Unsynced::kTornAtByte);
    log = Open(disk);
    CHECK(log->Stored().at(0).position <= Position(1));
  }
}

TEST_CASE("JobLog: one that a full disk keeps from being opened leaves no new segment",
          "[server][storage]") {
  SimDisk disk(1);
  std::unique_ptr<JobLog> log = Open(disk);
  log->Begin(kA, Term(1), FixtureSnapshot(0, 1, 500));
  REQUIRE_OK(log->Commit());
  log.reset();
  const std::vector<std::string> files = disk.files();
  disk.SetCapacity(disk.bytes() + 10);
  CHECK_STATUS(JobLog::Open(&disk, "log/job-1", {}), absl::StatusCode::kResourceExhausted, "");
  CHECK(disk.files() == files);
  disk.SetCapacity(-1);
  CHECK(Open(disk)->Stored() == std::vector<StoredState>{{kA, Term(1), Position(0)}});
}

TEST_CASE("JobLog: what a process that died had not synced is synced before it counts",
          "[server][storage]") {
  SimDisk disk(1);
  std::unique_ptr<JobLog> log = Open(disk);
  log->Begin(kA, Term(1), FixtureSnapshot(0, 1, 10));
  REQUIRE_OK(log->Commit());
  log->Append(kA, Term(1), FixtureRecord(1, 1, 100));
  disk.FailAt(disk.steps() + 1, Fault::kLyingSync);  // The process dies before its sync.
  REQUIRE_OK(log->Commit());
  disk.KillProcess();
  log = Open(disk);
  REQUIRE(log->Stored().at(0).position == Position(1));  // From the cache: now it counts.
  disk.Crash(Unsynced::kLost);
  log = Open(disk);
  CHECK(log->Stored().at(0).position == Position(1));
}

TEST_CASE("JobLog: its files stay within twice what is live and two segments",
          "[server][storage]") {
  constexpr int64_t kSegment = 2000;
  for (const uint64_t seed : {1, 2, 3}) {
    SimDisk disk(seed);
    std::unique_ptr<JobLog> log = Open(disk, kSegment);
    // An idle shard, and a busy one that is begun anew from time to time.
    log->Begin(kA, Term(1), FixtureSnapshot(0, 1, 300));
    int64_t peak = 0;
    for (int64_t i = 0; i < 2000; ++i) {
      if (i % 20 == 0) log->Begin(kB, Term(1), FixtureSnapshot(i, seed, 300));
      log->Append(kB, Term(1), FixtureRecord(i + 1, seed, 100));
      if (i % 3 == 0) REQUIRE_OK(log->Commit());
      peak = std::max(peak, disk.bytes() - 2 * log->live_bytes());
      // Behind what counts lies the frame that says that it was synced.
      REQUIRE(log->bytes() + log->segments() * kFrameOverheadBytes == disk.bytes());
    }
    REQUIRE_OK(log->Commit());
    CHECK(peak <= 3 * kSegment);  // The batch that was just written comes on top.
    CHECK(log->Stored() ==
          std::vector<StoredState>{{kA, Term(1), Position(0)}, {kB, Term(1), Position(2000)}});
    CHECK(Open(disk, kSegment)->Stored() == log->Stored());
  }
}

// The head of a segment lists all others: of many small ones it would outweigh what it precedes.
TEST_CASE("JobLog: cleaning comes to an end however small segments are", "[server][storage]") {
  constexpr int64_t kSegment = 1024;
  SimDisk disk(1);
  std::unique_ptr<JobLog> log = Open(disk, kSegment);
  for (int round = 0; round < 4; ++round) {
    for (int32_t shard = 0; shard < 400; ++shard) {
      log->Begin({TableId(0), ShardId(shard)}, Term(1), FixtureSnapshot(0, 1, 200));
      REQUIRE_OK(log->Commit());
      REQUIRE(disk.bytes() <= 5 * log->live_bytes() / 2 + 2 * kSegment);
    }
  }
  CHECK(log->Stored().size() == 400);
  CHECK(Open(disk, kSegment)->Stored() == log->Stored());
}

TEST_CASE("JobLog: flipped bits are found and named, whichever file they are in",
          "[server][storage]") {
  constexpr int64_t kSegment = 1500;
  SimDisk disk(5);
  std::unique_ptr<JobLog> log = Open(disk, kSegment);
  const LogFixture fixture(11, 60);
  int tried = 0;
  REQUIRE(fixture.Run(*log, &tried) == 60);
  REQUIRE(log->segments() >= 3);
  const std::vector<std::string> files = disk.files();
  for (const std::string& path : files) {
    REQUIRE_OK_AND_ASSIGN(const std::string good, disk.Read(path, 1 << 20));
    const size_t synced = good.size() - kFrameOverheadBytes;
    for (size_t bit = 0; bit < synced * 8; bit += 13) {
      INFO(path << ", bit " << bit);
      disk.FlipBit(path, static_cast<int64_t>(bit));
      const absl::Status status =
          JobLog::Open(&disk, "log/job-1", {.segment_bytes_max = kSegment}).status();
      REQUIRE(status.code() == absl::StatusCode::kDataLoss);
      REQUIRE(std::string(status.message()).find(path) != std::string::npos);
      REQUIRE(disk.files() == files);  // Nothing was touched.
      disk.FlipBit(path, static_cast<int64_t>(bit));
    }
  }
  // Nothing rests on the frame that says that those before it were synced.
  for (size_t bit = 0; bit < kFrameOverheadBytes * 8; bit += 13) {
    SimDisk copy(5);
    REQUIRE(fixture.Run(*Open(copy, kSegment), &tried) == 60);
    REQUIRE_OK_AND_ASSIGN(const std::string good, copy.Read(files.back(), 1 << 20));
    copy.FlipBit(files.back(), static_cast<int64_t>(good.size() * 8 - 1 - bit));
    REQUIRE_OK_AND_ASSIGN(const LogState state, ReadState(*Open(copy, kSegment)));
    REQUIRE(state == fixture.states().back());
  }
  // A log that is open finds it as well, when it reads.
  disk.FlipBit(files.back(), 8 * 200);
  CHECK_STATUS(ReadState(*log), absl::StatusCode::kDataLoss, files.back());
}

TEST_CASE("JobLog: it says which incarnation of the server had all of a shard last",
          "[server][storage]") {
  auto disk = std::make_shared<SimDisk>(1);
  const auto incarnation = [](const JobLog& log) { return log.Stored().at(0).incarnation; };
  auto log = Open(*disk);
  log->set_writer(Incarnation(3), {});
  log->Begin(kA, Term(1), FixtureSnapshot(0, 1, 10));
  REQUIRE_OK(log->Commit());
  CHECK(incarnation(*log) == Incarnation(3));
  log = Open(*disk);
  CHECK(incarnation(*log) == Incarnation(3));
  log->set_writer(Incarnation(7), {});
  log->Continue(kA, Term(2), Position(0));
  CHECK(incarnation(*log) == Incarnation(3));  // It is not durable yet.
  REQUIRE_OK(log->Commit());
  CHECK(incarnation(*log) == Incarnation(7));
  CHECK(incarnation(*Open(*disk)) == Incarnation(7));
}

TEST_CASE("JobLog: it says what the writer of a shard's last frame had heard of",
          "[server][storage]") {
  SimDisk disk(1);
  auto log = Open(disk);
  const auto seen = [&] { return log->Stored().at(0).seen; };
  log->set_writer(Incarnation(3), {.scheduler = 70, .count = 1});
  log->Begin(kA, Term(1), FixtureSnapshot(0, 1, 10));
  REQUIRE_OK(log->Commit());
  CHECK(seen() == StoreRevision{70, 1});
  log->set_writer(Incarnation(3), {.scheduler = 70, .count = 2});
  log->Append(kA, Term(1), FixtureRecord(1, 1, 10));
  REQUIRE_OK(log->Commit());
  CHECK(seen() == StoreRevision{70, 2});
  log->set_writer(Incarnation(3), {.scheduler = 9, .count = 1});
  log->Continue(kA, Term(2), Position(1));
  REQUIRE_OK(log->Commit());
  CHECK(seen() == StoreRevision{9, 1});
  log = Open(disk);
  CHECK(seen() == StoreRevision{9, 1});
}

TEST_CASE("JobLog: a log of format 1 is refused and left as it is", "[server][storage]") {
  SimDisk disk(5);
  std::unique_ptr<JobLog> log = Open(disk);
  log->Begin(kA, Term(1), FixtureSnapshot(0, 1, 10));
  REQUIRE_OK(log->Commit());
  const std::vector<std::string> files = disk.files();
  REQUIRE_OK_AND_ASSIGN(std::string bytes, disk.Read(files.back(), 1 << 20));
  REQUIRE_OK_AND_ASSIGN(const std::unique_ptr<WritableFile> file, disk.Create(files.back()));
  REQUIRE_OK(file->Append(bytes.replace(0, 4, "CAPF")));
  CHECK_STATUS(JobLog::Open(&disk, "log/job-1", {}), absl::StatusCode::kDataLoss,
               files.back() + ": at byte 0 there is a frame of format 1, expected format 4");
  CHECK(disk.files() == files);
}

TEST_CASE("JobLog: numbers that leave no room for those that follow are refused",
          "[server][storage]") {
  SimDisk disk(5);
  SECTION("a segment") {
    const std::string path = "log/job-1/segment-18446744073709551615.log";
    REQUIRE_OK(disk.MakeFolder("log/job-1"));
    REQUIRE_OK(disk.Create(path).status());
    CHECK_STATUS(JobLog::Open(&disk, "log/job-1", {}), absl::StatusCode::kDataLoss,
                 path + ": expected a number up to 4611686018427387904");
  }
  SECTION("a position") {
    const std::unique_ptr<JobLog> log = Open(disk);
    log->Begin(kA, Term(1), FixtureSnapshot(INT64_MAX, 1, 10));
    REQUIRE_OK(log->Commit());
    CHECK_STATUS(JobLog::Open(&disk, "log/job-1", {}), absl::StatusCode::kDataLoss,
                 "log/job-1: table 0 shard 0: its state is of position 9223372036854775807");
  }
}

TEST_CASE("JobLog: a segment that is missing or cut short is found", "[server][storage]") {
  constexpr int64_t kSegment = 1500;
  SimDisk disk(5);
  std::unique_ptr<JobLog> log = Open(disk, kSegment);
  int tried = 0;
  REQUIRE(LogFixture(11, 60).Run(*log, &tried) == 60);
  const std::string first = disk.files().front();
  SECTION("missing") {
    REQUIRE_OK(disk.Remove(first));
    CHECK_STATUS(JobLog::Open(&disk, "log/job-1", {}), absl::StatusCode::kDataLoss, first);
  }
  SECTION("cut short") {
    REQUIRE_OK_AND_ASSIGN(const std::string good, disk.Read(first, 1 << 20));
    REQUIRE_OK_AND_ASSIGN(const std::unique_ptr<WritableFile> file, disk.Create(first));
    REQUIRE_OK(file->Append(good.substr(0, good.size() - kFrameOverheadBytes - 1)));
    CHECK_STATUS(JobLog::Open(&disk, "log/job-1", {}), absl::StatusCode::kDataLoss,
                 "which were synced");
  }
}

TEST_CASE("JobLog: a bit that is wrong on one read only does no harm", "[server][storage]") {
  SimDisk disk(5);
  std::unique_ptr<JobLog> log = Open(disk, 1500);
  const LogFixture fixture(11, 60);
  int tried = 0;
  REQUIRE(fixture.Run(*log, &tried) == 60);
  SimDisk::Rates rates;
  rates.bit_flip_on_read = 0.02;
  disk.SetRates(rates);
  for (int i = 0; i < 20; ++i) {
    log = Open(disk, 1500);
    REQUIRE_OK_AND_ASSIGN(const LogState state, ReadState(*log));
    CHECK(state == fixture.states().back());
  }
  CHECK(disk.injected(Fault::kBitFlipOnRead) > 0);
}

TEST_CASE("JobLog: only what it has can go on in a later term", "[server][storage]") {
  SimDisk disk(1);
  const ShardKey shard{TableId(0), ShardId(0)};
  const v1::ShardSnapshot snapshot = testing::FixtureSnapshot(4, 1, 50);
  const v1::ShardRecord record = testing::FixtureRecord(5, 1, 50);
  {
    REQUIRE_OK_AND_ASSIGN(const auto log, JobLog::Open(&disk, "log", {}));
    log->Begin(shard, Term(1), snapshot);
    log->Continue(shard, Term(3), Position(4));
    log->Append(shard, Term(3), record);
    REQUIRE_OK(log->Commit());
  }
  const std::vector<StoredState> stored = {{shard, Term(3), Position(5)}};
  {
    REQUIRE_OK_AND_ASSIGN(const auto log, JobLog::Open(&disk, "log", {}));
    CHECK(log->Stored() == stored);
    log->Continue(shard, Term(4), Position(5));
    REQUIRE_OK(log->Commit());
    CHECK(log->Stored().at(0).term == Term(4));
  }
  const auto fails = [&](const ShardKey& key, uint64_t term, int64_t position) {
    REQUIRE_OK_AND_ASSIGN(const auto log, JobLog::Open(&disk, "log", {}));
    log->Continue(key, Term(term), Position(position));
    return log->Commit();
  };
  CHECK_STATUS(fails(shard, 5, 6), absl::StatusCode::kInternal,
               "goes on from position 6 in term 5, expected position 4 to 5 and a term after 4");
  CHECK_STATUS(fails(shard, 5, 3), absl::StatusCode::kInternal, "expected position 4 to 5");
  CHECK_STATUS(fails(shard, 4, 5), absl::StatusCode::kInternal, "a term after 4");
  CHECK_STATUS(fails({TableId(0), ShardId(1)}, 5, 5), absl::StatusCode::kInternal,
               "a whole shard first");
}

}  // namespace
}  // namespace capstan::server::job_log_test
