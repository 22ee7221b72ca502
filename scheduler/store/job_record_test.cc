#include "scheduler/store/job_record.h"

#include <google/protobuf/unknown_field_set.h>

#include <catch2/catch.hpp>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/random/philox.h"
#include "common/testing/status_matchers.h"
#include "scheduler/core/placement/job_table.h"
#include "scheduler/core/plan/job_plan.h"
#include "scheduler/core/testing/fake_cluster.h"
#include "scheduler/store/archive.h"
#include "scheduler/store/schema_version.h"
#include "scheduler/store/state_codec.h"

namespace capstan::scheduler::job_record_test {
namespace {

using testing::FakeCluster;

const JobId kJob = "job-7";

// A cluster with two servers that trains a job with a log, and the record of that job.
struct OldCluster {
  explicit OldCluster(ConsistencyMode mode = ConsistencyMode::kAsp)
      : cluster(FakeCluster::Options()) {
    cluster.AddServer("server-1");
    cluster.AddServer("server-2");
    cluster.AddWorker("worker-1", 2);
    JobPlan plan = testing::Plan(kJob, 2, mode);
    plan.log = true;
    plan.unique_id = "aa-1";
    plan.folders.output = "/out";
    REQUIRE_OK(cluster.Submit(plan));
    REQUIRE(cluster.RunUntil([this] { return cluster.View(kJob).samples_done > 200; },
                             absl::Minutes(1)));
    routing = *cluster.core().jobs().RoutingOf(kJob).value();
    batches = cluster.View(kJob).iteration;
    record = EncodeJobRecord(cluster.core(), kJob, {"admitted/" + kJob, "as admitted"}, At());
  }
  Moment At() const {
    return {cluster.now(), absl::UnixEpoch() + absl::Hours(1) + cluster.now().SinceOrigin()};
  }
  // Returns the shards in the log of a server.
  std::vector<StoredShard> LogOf(const NodeId& node) const {
    std::vector<StoredShard> stored;
    for (const ShardRoute& route : routing.shards) {
      const ServerRef& server = routing.servers[static_cast<size_t>(route.server)];
      if (server.node != node) continue;
      stored.push_back({kJob, route.key, route.term, Position(100), "aa-1", server.incarnation});
    }
    REQUIRE_FALSE(stored.empty());
    return stored;
  }

  FakeCluster cluster;
  Routing routing;
  int64_t batches = 0;
  std::string record;
};

// A scheduler with an empty store.
struct NewCluster {
  NewCluster() {
    SchedulerCore::Options options;
    options.first_incarnation = Incarnation(uint64_t{1} << 40);
    core = std::make_unique<SchedulerCore>(options);
  }
  void Join(Role role, const std::string& name, const std::vector<StoredShard>& stored = {}) {
    Actions joined;
    NodeInfo info{.name = name, .role = role, .address = name + ":1"};
    if (!stored.empty()) logs[name] = stored;
    info.task_capacity = role == Role::kWorker ? 2 : 0;
    REQUIRE_OK(core->Register(info, now, joined));
  }
  void JoinAll(const OldCluster& old) {
    Join(Role::kServer, "server-1", old.LogOf("server-1"));
    Join(Role::kServer, "server-2", old.LogOf("server-2"));
    Join(Role::kWorker, "worker-1");
  }
  absl::Status Adopt(const std::string& bytes, bool only_check = false) {
    const absl::StatusOr<JobRecord> record = DecodeJobRecord(bytes);
    if (!record.ok()) return record.status();
    const absl::Status loaded =
        LoadJob(record->rows, record->job, {now, absl::UnixEpoch() + absl::Hours(2)}, *core);
    if (!loaded.ok()) return loaded;
    return core->Adopt({.job = record->job,
                        .cluster = "aa",
                        .record_age = absl::Seconds(3),
                        .stored = logs,
                        .checkpoint_floor = CheckpointId(5),
                        .only_check = only_check},
                       now, actions);
  }
  bool Knows() const { return core->jobs().Find(kJob) != nullptr; }

  std::unique_ptr<SchedulerCore> core;
  std::map<NodeId, std::vector<StoredShard>> logs;
  Instant now = Instant() + absl::Seconds(5);
  Actions actions;
};

TEST_CASE("Job record: what it says of a job, and which of two counts", "[scheduler][store]") {
  const OldCluster old;
  REQUIRE_OK_AND_ASSIGN(JobRecord record, DecodeJobRecord(old.record));
  CHECK(record.job == kJob);
  CHECK(record.unique_id == "aa-1");
  CHECK(record.routing == old.routing.generation);
  CHECK(record.unix_ms == absl::ToUnixMillis(old.At().wall));
  CHECK_FALSE(record.stood.empty());
  CHECK(record.rows.at("admitted/" + kJob) == "as admitted");
  CHECK(record.rows.size() == 3);
  JobRecord later = record;
  CHECK_FALSE(later.IsNewerThan(record));
  ++later.unix_ms;
  CHECK(later.IsNewerThan(record));
  ++record.routing;  // A later routing table counts more than a later time.
  CHECK(record.IsNewerThan(later));
}

TEST_CASE("Job record: bytes that are none, or of another release, are refused",
          "[scheduler][store]") {
  const OldCluster old;
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{9}, old.record.size() - 1}) {
    CHECK_STATUS(DecodeJobRecord(old.record.substr(0, bytes)), absl::StatusCode::kDataLoss,
                 "the record of where the job stands");
  }
  const auto of = [](int64_t schema, int64_t fields) {
    return DecodeJobRecord(EncodeState(
        Moment(), [&](auto& archive) { archive(schema, fields, int64_t{1}, std::string("x")); }));
  };
  CHECK_STATUS(of(9999, 0), absl::StatusCode::kFailedPrecondition, "schema version 9999");
  CHECK_STATUS(of(kSchemaVersion, kFieldsVersion + 1), absl::StatusCode::kFailedPrecondition,
               absl::StrCat("fields version ", kFieldsVersion + 1));
  CHECK_STATUS(DecodeJobRecord(std::string("\1\1\0\0\0\33\0\0\0", 9)), absl::StatusCode::kDataLoss,
               "earlier release");
}

TEST_CASE("Adoption: a job goes on from the logs that came (issue 20)", "[scheduler][store]") {
  const ConsistencyMode mode =
      GENERATE(ConsistencyMode::kBsp, ConsistencyMode::kSsp, ConsistencyMode::kAsp);
  const OldCluster old(mode);
  NewCluster fresh;
  fresh.JoinAll(old);
  REQUIRE_OK(fresh.Adopt(old.record));
  const JobView view = fresh.core->Job(kJob, fresh.now).value();
  CHECK(view.state == JobState::kRunning);
  CHECK(view.phase == JobPhase::kRecovering);
  CHECK(view.iteration >= old.batches);
  const Routing routing = *fresh.core->jobs().RoutingOf(kJob).value();
  CHECK(routing.generation > Generation(kGenerationsPerAdoption));
  REQUIRE(routing.shards.size() == old.routing.shards.size());
  for (size_t i = 0; i < routing.shards.size(); ++i) {
    // Each shard is on its old server, with a new incarnation and a higher term than all before.
    const ShardRoute& route = routing.shards[i];
    const ServerRef& server = routing.servers[static_cast<size_t>(route.server)];
    const ShardRoute& before = old.routing.shards[i];
    CHECK(server.node == old.routing.servers[static_cast<size_t>(before.server)].node);
    CHECK(server.incarnation >= Incarnation(uint64_t{1} << 40));
    CHECK(route.term > Term(kGenerationsPerAdoption));
  }
  REQUIRE(view.events.size() >= 1);
  CHECK(view.events[0].kind == JobEventKind::kRecovered);
  // The scheduler's own jobs get other names.
  CHECK(fresh.core->TakeJobNumber() == 8);
  // The job is durable like any other, and the core knows it.
  CHECK(fresh.actions.changes.jobs.contains(kJob));
  CHECK(fresh.actions.changes.routings.contains(kJob));
  CHECK_STATUS(LoadJob(DecodeJobRecord(old.record)->rows, kJob, old.At(), *fresh.core),
               absl::StatusCode::kDataLoss, "known already");
  CHECK(fresh.Knows());
}

TEST_CASE("Adoption: what is missing is named, and nothing has changed", "[scheduler][store]") {
  const OldCluster old;
  NewCluster fresh;
  const auto refused = [&](const std::string& why) {
    CHECK_STATUS(fresh.Adopt(old.record), absl::StatusCode::kFailedPrecondition, why);
    CHECK_FALSE(fresh.Knows());
    CHECK(fresh.core->Jobs(fresh.now).empty());
    CHECK(fresh.core->TakeJobNumber() < 7);
  };
  SECTION("no server") { refused("server-1 (table/shard 0/0"); }
  SECTION("a server's log") {
    fresh.Join(Role::kServer, "server-1", old.LogOf("server-1"));
    fresh.Join(Role::kWorker, "worker-1");
    refused("server-2 (table/shard");
    // The server with the log registers under another name.
    fresh.Join(Role::kServer, "server-3", old.LogOf("server-2"));
    refused("server-3 brought logs of the job under another name");
  }
  SECTION("a log of an earlier disk") {
    fresh.Join(Role::kServer, "server-1", old.LogOf("server-1"));
    std::vector<StoredShard> older = old.LogOf("server-2");
    for (StoredShard& shard : older) shard.incarnation = Incarnation(0);
    fresh.Join(Role::kServer, "server-2", older);
    refused("server-2 (table/shard");
  }
  SECTION("the log of another job of that id") {
    fresh.Join(Role::kServer, "server-1", old.LogOf("server-1"));
    std::vector<StoredShard> others = old.LogOf("server-2");
    for (StoredShard& shard : others) shard.unique_id = "bb-2";
    fresh.Join(Role::kServer, "server-2", others);
    refused("server-2 (table/shard");
  }
  SECTION("a worker") {
    fresh.Join(Role::kServer, "server-1", old.LogOf("server-1"));
    fresh.Join(Role::kServer, "server-2", old.LogOf("server-2"));
    refused("no worker");
  }
}

TEST_CASE("Adoption: a job whose id or folders are taken is refused", "[scheduler][store]") {
  const OldCluster old;
  NewCluster fresh;
  JobPlan plan = testing::Plan(kJob, 1);
  plan.unique_id = "bb-2";
  REQUIRE_OK(fresh.core->SubmitJob(plan, fresh.now, fresh.actions));
  JobPlan theirs = testing::Plan(kJob, 1);
  theirs.unique_id = "aa-1";
  CHECK_STATUS(fresh.core->jobs().CheckAdoption(theirs, fresh.now),
               absl::StatusCode::kAlreadyExists, "capstan job delete job-7");
  CHECK_STATUS(fresh.Adopt(old.record), absl::StatusCode::kDataLoss, "known already");
  CHECK(fresh.Knows());
  theirs.unique_id = "bb-2";
  CHECK_STATUS(fresh.core->jobs().CheckAdoption(theirs, fresh.now),
               absl::StatusCode::kAlreadyExists, "already");
  plan.id = "job-8";
  plan.folders.output = "/out";
  REQUIRE_OK(fresh.core->SubmitJob(plan, fresh.now, fresh.actions));
  theirs.id = "job-9";
  theirs.folders.output = "/out";
  CHECK_STATUS(fresh.core->jobs().CheckAdoption(theirs, fresh.now),
               absl::StatusCode::kFailedPrecondition, "of job-8");
}

TEST_CASE("Adoption: a check changes nothing", "[scheduler][store]") {
  const OldCluster old;
  NewCluster fresh;
  fresh.JoinAll(old);
  REQUIRE_OK(fresh.Adopt(old.record, /*only_check=*/true));
  CHECK_FALSE(fresh.Knows());
  CHECK(fresh.actions.events.empty());
  CHECK(fresh.actions.changes.empty());
  REQUIRE_OK(fresh.Adopt(old.record));
  CHECK(fresh.Knows());
}

TEST_CASE("Adoption: a plan that cannot be is refused by field and value (SIGFPE before)",
          "[scheduler][store]") {
  const ConsistencyMode mode = GENERATE(ConsistencyMode::kBsp, ConsistencyMode::kAsp);
  OldCluster old(mode);
  // The record of a job whose plan is `changed`, but for its state.
  const auto adopt = [&](const std::function<void(JobPlan&)>& change) {
    NewCluster fresh;
    fresh.JoinAll(old);
    JobPlan& plan = const_cast<JobEntry*>(old.cluster.core().jobs().Find(kJob))->plan;
    const JobPlan before = plan;
    change(plan);
    const std::string record =
        EncodeJobRecord(old.cluster.core(), kJob, {"admitted/" + kJob, "as admitted"}, old.At());
    plan = before;
    const absl::Status status = fresh.Adopt(record);
    CHECK(fresh.Knows() == status.ok());
    return status;
  };
  const auto refused = [&](const std::string& why, const std::function<void(JobPlan&)>& change) {
    CHECK_STATUS(adopt(change), absl::StatusCode::kDataLoss, why);
  };
  REQUIRE_OK(adopt([](JobPlan&) {}));
  refused("training.batch_size: 0, expected 1", [](JobPlan& plan) { plan.batch_size = 0; });
  refused("training.epochs: -1, expected 1", [](JobPlan& plan) { plan.epochs = -1; });
  refused("data.train: examples: 0, expected 1", [](JobPlan& plan) { plan.train_count = 0; });
  refused("resources.workers: 2147483647, expected 1 to 4096",
          [](JobPlan& plan) { plan.workers = std::numeric_limits<int>::max(); });
  refused("tasks: 2, expected one for each of 3 workers", [](JobPlan& plan) { plan.workers = 3; });
  refused("resources.gpus: 0, expected 1",
          [](JobPlan& plan) { plan.device.kind = DeviceNeed::Kind::kGpu; });
  if (mode != ConsistencyMode::kBsp) return;
  refused("training.slots: 0, expected 1", [](JobPlan& plan) { plan.consistency.slots = 0; });
  refused("slots: 4, expected 5 to 5", [](JobPlan& plan) { plan.consistency.slots = 5; });
}

TEST_CASE("Adoption: a row without a plan is refused (SIGFPE before)", "[scheduler][store]") {
  // The job without a name, which runs.
  StoreRows rows = {{"job/", "\x0a\x02\x18\x01"},
                    {"routing/", EncodeState(Moment(), [](auto& archive) { archive(Routing()); })}};
  NewCluster fresh;
  CHECK_STATUS(LoadJob(rows, "", Moment(), *fresh.core), absl::StatusCode::kDataLoss,
               "field 1: it is missing");
  rows["job/"] = EncodeState(Moment(), [](auto& archive) { archive(JobPlan()); });
  CHECK_STATUS(LoadJob(rows, "", Moment(), *fresh.core), absl::StatusCode::kDataLoss,
               "data.train: examples: 0, expected 1");
  CHECK_STATUS(LoadPlan({}, kJob), absl::StatusCode::kDataLoss, "there is no row of job-7");
}

// Damages bytes as a forger would: numbers become 0, small or huge, and lengths stay right.
struct Forger {
  explicit Forger(uint64_t of) : seed(of) {}
  uint32_t Below(uint32_t bound) { return PhiloxWord(seed, next++) % bound; }
  // Changes one number of a message, at any depth. `bytes`: the message's fields.
  std::string Forge(const std::string& bytes) {
    google::protobuf::UnknownFieldSet fields;
    if (bytes.empty() || !fields.ParseFromString(bytes)) return bytes;
    google::protobuf::UnknownField& field =
        *fields.mutable_field(static_cast<int>(Below(static_cast<uint32_t>(fields.field_count()))));
    using Field = google::protobuf::UnknownField;
    if (field.type() == Field::TYPE_VARINT) {
      field.set_varint(Number(field.varint()));
    } else if (field.type() == Field::TYPE_LENGTH_DELIMITED && Below(12) == 0) {
      field.mutable_length_delimited()->clear();
    } else if (field.type() == Field::TYPE_LENGTH_DELIMITED) {
      *field.mutable_length_delimited() = Forge(field.length_delimited());
    }
    std::string forged;
    REQUIRE(fields.SerializeToString(&forged));
    return forged;
  }
  uint64_t Number(uint64_t before) {
    constexpr uint64_t kLargest = std::numeric_limits<int64_t>::max();
    const uint64_t numbers[] = {0,
                                1,
                                2,
                                before + 1,
                                before - 1,
                                5,
                                7,
                                ~uint64_t{0},
                                kLargest,
                                kLargest + 1,
                                1u << 30,
                                0x7fffffff,
                                kLargest / 2,
                                Below(1000),
                                before * 2,
                                1ull << 62,
                                (1ull << 62) + 1};
    return numbers[Below(std::size(numbers))];
  }
  uint64_t seed;
  uint64_t next = 0;
};

TEST_CASE("Adoption: forged numbers never crash a scheduler", "[scheduler][store]") {
  const ConsistencyMode mode =
      GENERATE(ConsistencyMode::kBsp, ConsistencyMode::kSsp, ConsistencyMode::kAsp);
  OldCluster old(mode);
  int refused = 0;
  int taken = 0;
  for (int moment = 0; moment < 6; ++moment) {
    if (moment == 2) old.cluster.AskCheckpoint(kJob);
    if (moment > 0) old.cluster.Run(absl::Milliseconds(700));
    const std::string bytes =
        EncodeJobRecord(old.cluster.core(), kJob, {"admitted/" + kJob, "as admitted"}, old.At());
    REQUIRE_OK_AND_ASSIGN(const JobRecord record, DecodeJobRecord(bytes));
    NewCluster first;
    first.JoinAll(old);
    if (moment == 0) REQUIRE_OK(first.Adopt(bytes));
    for (uint64_t seed = 0; seed < 250; ++seed) {
      CAPTURE(moment, seed);
      Forger forger(seed + 1000 * static_cast<uint64_t>(moment));
      StoreRows rows = record.rows;
      rows.erase("admitted/" + kJob);
      std::string& row = rows[forger.Below(4) == 0 ? "routing/" + kJob : "job/" + kJob];
      row = forger.Forge(row);
      NewCluster fresh;
      fresh.JoinAll(old);
      if (LoadJob(rows, kJob, old.At(), *fresh.core).ok()) {
        ++taken;
        fresh.core
            ->Adopt({.job = kJob, .cluster = "aa", .stored = fresh.logs}, fresh.now, fresh.actions)
            .IgnoreError();
        for (int second = 0; second < 80; second += 20) {
          fresh.core->Job(kJob, fresh.now).IgnoreError();
          fresh.now = fresh.now + absl::Seconds(20);
          fresh.core->Tick(fresh.now, fresh.actions);
        }
      } else {
        ++refused;
        CHECK_FALSE(fresh.Knows());
      }
      // The same as rows of its own store.
      Actions actions;
      auto core = RestoreCore(rows, SchedulerCore::Options(), old.At(), actions);
      Instant now = old.cluster.now();
      for (int second = 0; core.ok() && second < 80; second += 20) {
        (*core)->Job(kJob, now).IgnoreError();
        now = now + absl::Seconds(20);
        (*core)->Tick(now, actions);
      }
    }
  }
  CHECK(refused > 100);
  CHECK(taken > 100);
}

TEST_CASE("Records: sent with each new table, else at their interval, of jobs with a log",
          "[scheduler][store]") {
  FakeCluster::Options options;
  options.core.record_interval = absl::Seconds(1);
  const bool log = GENERATE(true, false);
  FakeCluster cluster(options);
  cluster.AddServer("server-1");
  cluster.AddWorker("worker-1", 1);
  JobPlan plan = testing::Plan(kJob, 1, ConsistencyMode::kAsp);
  plan.log = log;
  REQUIRE_OK(cluster.Submit(plan));
  REQUIRE(cluster.RunUntil([&] { return cluster.View(kJob).samples_done > 0; }, absl::Minutes(1)));
  const auto number = [&] { return cluster.core().jobs().Find(kJob)->record; };
  const uint64_t first = number();
  CHECK((first > 0) == log);
  cluster.Run(absl::Seconds(3));
  CHECK((number() > first) == log);
  CHECK(cluster.error() == "");
}

}  // namespace
}  // namespace capstan::scheduler::job_record_test
