#include "scheduler/state/orphaned_logs.h"

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/testing/status_matchers.h"
#include "scheduler/core/testing/fake_cluster.h"
#include "scheduler/store/job_record.h"

namespace capstan::scheduler::orphaned_logs_test {
namespace {

using testing::FakeCluster;

// Returns a record of job-1 in a cluster that ran for `ran`.
std::string RecordAfter(absl::Duration ran, const std::string& unique_id = "aa-1") {
  FakeCluster cluster{FakeCluster::Options()};
  cluster.AddServer("server-1");
  cluster.AddWorker("worker-1", 1);
  JobPlan plan = testing::Plan("job-1", 1);
  plan.log = true;
  plan.unique_id = unique_id;
  REQUIRE_OK(cluster.Submit(plan));
  cluster.Run(ran);
  const Moment at{cluster.now(), absl::UnixEpoch() + cluster.now().SinceOrigin()};
  return EncodeJobRecord(cluster.core(), "job-1", {"admitted/job-1", ""}, at);
}

void Add(v1::RegisterRequest& request, const std::string& unique_id, const std::string& record,
         const std::string& damage = "") {
  v1::KeptLog& log = *request.add_logs();
  log.set_job_id("job-1");
  log.set_unique_id(unique_id);
  log.set_record(record);
  log.set_damage(damage);
}

// The store's rows after the writes of registrations.
struct Store {
  void Write(const std::vector<StoreWrite>& writes) {
    for (const StoreWrite& write : writes) {
      rows.erase(write.key);
      if (write.value) rows[write.key] = *write.value;
    }
  }
  StoreRows rows;
};

TEST_CASE("Orphaned logs: the newest record counts, and every server that has a log is named",
          "[scheduler]") {
  const std::string older = RecordAfter(absl::Seconds(1));
  const std::string newer = RecordAfter(absl::Seconds(2));
  OrphanedLogs orphans;
  Store store;
  v1::RegisterRequest first;
  Add(first, "aa-1", newer);
  const StoredShard shard{"job-1", {TableId(0), ShardId(3)}, Term(2), Position(7), "aa-1"};
  StoredShard other = shard;  // A shard in another log.
  other.unique_id = "bb-2";
  store.Write(orphans.Note("server-1", first, {shard, other}, {}));
  v1::RegisterRequest second;
  Add(second, "aa-1", older, "a bit has changed");
  store.Write(orphans.Note("server-2", second, {}, {}));
  const auto check = [&](const OrphanedLogs& logs) {
    REQUIRE(logs.jobs().size() == 1);
    const OrphanedJob& job = logs.jobs().at("aa-1");
    CHECK(job.id == "job-1");
    CHECK(job.bytes == newer);
    CHECK(job.record.ok());
    CHECK(job.logs.at("server-1").damage.empty());
    CHECK(job.logs.at("server-1").shards == std::vector<StoredShard>{shard});
    CHECK(job.logs.at("server-2").damage == "a bit has changed");
    CHECK(job.logs.at("server-2").shards.empty());
  };
  check(orphans);
  // A restarted scheduler knows the same.
  REQUIRE_OK_AND_ASSIGN(const OrphanedLogs again, OrphanedLogs::Load(store.rows));
  check(again);
}

TEST_CASE("Orphaned logs: those of known jobs are none; what no server has any more is forgotten",
          "[scheduler]") {
  OrphanedLogs orphans;
  Store store;
  v1::RegisterRequest request;
  Add(request, "aa-1", "");
  Add(request, "aa-2", "");
  store.Write(orphans.Note("server-1", request, {}, {"aa-1"}));
  CHECK(orphans.jobs().size() == 1);
  CHECK(store.rows.size() == 1);
  CHECK_STATUS(orphans.jobs().at("aa-2").record, absl::StatusCode::kNotFound, "no server has");
  SECTION("it registers without it") {
    store.Write(orphans.Note("server-1", v1::RegisterRequest(), {}, {}));
  }
  SECTION("it says that it has removed it, more than once") {
    v1::SyncNodeRequest sync;
    for (const char* removed : {"aa-1", "aa-2", "aa-3"}) sync.add_removed_logs(removed);
    store.Write(orphans.NoteRemoved("server-1", sync.removed_logs()));
    CHECK(orphans.NoteRemoved("server-1", sync.removed_logs()).empty());
  }
  SECTION("its job was taken up") { store.Write({orphans.Forget("aa-2")}); }
  CHECK(orphans.jobs().empty());
  CHECK(store.rows.empty());
}

TEST_CASE("Orphaned logs: a server's log that was removed leaves those of others", "[scheduler]") {
  OrphanedLogs orphans;
  Store store;
  v1::RegisterRequest request;
  Add(request, "aa-1", RecordAfter(absl::Seconds(1)));
  store.Write(orphans.Note("server-1", request, {}, {}));
  store.Write(orphans.Note("server-2", request, {}, {}));
  v1::SyncNodeRequest sync;
  sync.add_removed_logs("aa-1");
  store.Write(orphans.NoteRemoved("server-1", sync.removed_logs()));
  REQUIRE_OK_AND_ASSIGN(const OrphanedLogs again, OrphanedLogs::Load(store.rows));
  for (const OrphanedLogs* logs : {&std::as_const(orphans), &again}) {
    const OrphanedJob& job = logs->jobs().at("aa-1");
    CHECK(job.record.ok());
    CHECK(job.logs.size() == 1);
    CHECK(job.logs.contains("server-2"));
  }
}

TEST_CASE("Orphaned logs: a record that cannot be read gives way to one that can", "[scheduler]") {
  OrphanedLogs orphans;
  v1::RegisterRequest request;
  Add(request, "aa-1", "?");
  orphans.Note("server-1", request, {}, {});
  CHECK(absl::IsDataLoss(orphans.jobs().at("aa-1").record.status()));
  v1::RegisterRequest other;
  Add(other, "aa-1", RecordAfter(absl::Seconds(1), "bb-2"));
  orphans.Note("server-2", other, {}, {});
  CHECK(absl::IsDataLoss(orphans.jobs().at("aa-1").record.status()));
  v1::RegisterRequest whole;
  Add(whole, "aa-1", RecordAfter(absl::Seconds(1)));
  orphans.Note("server-3", whole, {}, {});
  CHECK(orphans.jobs().at("aa-1").record.ok());
  orphans.Note("server-1", request, {}, {});  // The server is back.
  CHECK(orphans.jobs().at("aa-1").record.ok());
}

TEST_CASE("Orphaned logs: a job is meant by its id or its unique id", "[scheduler]") {
  OrphanedLogs orphans;
  v1::RegisterRequest request;
  Add(request, "aa-1", "");
  orphans.Note("server-1", request, {}, {});
  CHECK(orphans.Find("job-1").value() == "aa-1");
  CHECK_STATUS(orphans.Find("job-2"), absl::StatusCode::kNotFound, "\"job-2\"");
  Add(request, "bb-2", "");
  orphans.Note("server-1", request, {}, {});
  CHECK_STATUS(orphans.Find("job-1"), absl::StatusCode::kFailedPrecondition, "aa-1, bb-2");
  CHECK(orphans.Find("bb-2").value() == "bb-2");
}

TEST_CASE("Orphaned logs: at most so many, and a damaged row is named", "[scheduler]") {
  OrphanedLogs orphans;
  v1::RegisterRequest request;
  for (size_t i = 0; i <= OrphanedLogs::kJobsMax; ++i) {
    Add(request, "aa-" + std::to_string(i), "");
  }
  CHECK(orphans.Note("server-1", request, {}, {}).size() == OrphanedLogs::kJobsMax);
  CHECK(orphans.jobs().size() == OrphanedLogs::kJobsMax);
  CHECK_STATUS(OrphanedLogs::Load({{"orphan/aa-1", "?"}}), absl::StatusCode::kDataLoss,
               "orphan/aa-1");
}

}  // namespace
}  // namespace capstan::scheduler::orphaned_logs_test
