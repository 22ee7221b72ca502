// Tests that today's code reads the stores that earlier versions have written, and loses nothing of
// them: each is read and written again, and all that it had must be there.
//
// scheduler/store/testdata has a store of each version that is read, made by the code of that
// version and never changed (scheduler/store/schema_version.h):
//
//   bazel run //scheduler/state:golden_store_test -- "[.make]"
#include <google/protobuf/unknown_field_set.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/security/capability.h"
#include "common/testing/status_matchers.h"
#include "scheduler/admission/admitted_codec.h"
#include "scheduler/core/core_archive.h"
#include "scheduler/core/testing/fake_cluster.h"
#include "scheduler/state/orphaned_logs.h"
#include "scheduler/store/job_record.h"
#include "scheduler/store/schema_version.h"
#include "scheduler/store/sqlite/sqlite_store.h"
#include "scheduler/store/state_codec.h"
#include "scheduler/testing/temporary_folder.h"

namespace capstan::scheduler::golden_store_test {
namespace {

using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;
using testing::FakeCluster;

constexpr char kFolder[] = "scheduler/store/testdata";
// A job's record and its checkpoint's job_state lie elsewhere in a real cluster.
constexpr char kRecordKey[] = "golden/record";
constexpr char kResumeKey[] = "golden/job_state";
// When all was saved.
const Moment kSaved{Instant::FromOrigin(absl::Minutes(2)), absl::FromUnixSeconds(1'700'000'000)};

const PluginRule kRule{.name = "signum", .digest = "12ab"};

std::string FileOf(int64_t schema, int64_t fields) {
  return absl::StrCat("store-", schema, "-", fields, ".db");
}

// ---------------------------------------------------------------- how a store is made

JobPlan Plan(const std::string& id, ConsistencyMode mode) {
  JobPlan plan = testing::Plan(id, 1, mode);
  plan.tables = {{3'000'000}, {8, true}};
  plan.train_count = 100'000'000;
  plan.export_path = absl::StrCat("/out/", id);
  plan.checkpoint_folder = absl::StrCat("/checkpoints/", id);
  plan.folders = {plan.export_path, plan.checkpoint_folder};
  plan.unique_id = absl::StrCat("aa-", id);
  plan.submission_id = 77;
  plan.owner = "user/ann";
  plan.plugin_rules = {kRule};
  return plan;
}

// A cluster whose jobs are in all kinds of states.
struct MixedCluster : FakeCluster {
  MixedCluster() : FakeCluster({.losses = {0.5, 0.25}}) {
    for (const char* name : {"server-1", "server-2", "server-3"}) {
      AddServer(name, {kRule});
    }
    SetGpus("worker-1", 2);
    AddWorker("worker-1", 4);
    AddWorker("worker-2", 4);
    End();
    Train();
    REQUIRE_OK(Submit(Waiting("pending-1")));
    REQUIRE_OK(Submit(Waiting("stopped-1")));
    REQUIRE_OK(core().StopJob("stopped-1", now(), ignored));
    Run(kSaved.now - absl::Seconds(20) - now());
    Kill("server-3");
    Run(absl::Seconds(15));
    Evaluate();
    Run(absl::Seconds(4));
    Drain("worker-2", /*cancel=*/false);
    Run(kSaved.now - now());
    REQUIRE(now() == kSaved.now);
    REQUIRE(error() == "");
  }
  static JobPlan Waiting(const std::string& id) {
    JobPlan plan = Plan(id, ConsistencyMode::kSsp);
    plan.workers = 50;
    plan.tables[0].tensor_ends = {1'000'000, 3'000'000};
    return plan;
  }
  // A job that succeeds, and one that fails.
  void End() {
    JobPlan plan = Plan("done-1", ConsistencyMode::kSsp);
    plan.train_count = 1000;
    plan.validation_count = 100;
    plan.decide = {.metric = DecisionPlan::Metric::kLoss, .on_validation = true, .keep_best = true};
    plan.objective = Objective::kClicks;
    REQUIRE_OK(Submit(plan));
    REQUIRE(RunUntil([&] { return Ended("done-1"); }, absl::Minutes(2)));
    plan = Plan("failed-1", ConsistencyMode::kAsp);
    plan.max_restarts = 0;
    REQUIRE_OK(Submit(plan));
    Run(absl::Seconds(1));
    CrashTask("failed-1", 0);
    REQUIRE(RunUntil([&] { return Ended("failed-1"); }, absl::Minutes(2)));
  }
  // Jobs that train to the end of the test: with replicas, logs, checkpoints, GPUs, crashes; from a
  // checkpoint.
  void Train() {
    JobPlan plan = Plan("bsp-1", ConsistencyMode::kBsp);
    plan.workers = 2;
    plan.replicas = 1;
    plan.log = true;
    plan.checkpoint_iterations = 50;
    plan.device = {.kind = DeviceNeed::Kind::kGpu, .gpus = 1};
    REQUIRE_OK(Submit(plan));
    plan = Plan("asp-1", ConsistencyMode::kAsp);
    plan.workers = 2;
    plan.checkpoint_interval = absl::Seconds(20);
    plan.ttl_seconds = 640;
    REQUIRE_OK(Submit(plan));
    REQUIRE(RunUntil([&] { return !Complete("asp-1").empty(); }, absl::Minutes(2)));
    CrashTask("asp-1", 1);
    const CheckpointPublish from = Complete("asp-1").front();
    plan = Plan("restored-1", ConsistencyMode::kAsp);
    REQUIRE_OK(Submit(plan, RestoreFrom{from.folder, from.at}));
  }
  void Evaluate() {
    JobPlan plan = Plan("tested-1", ConsistencyMode::kAsp);
    plan.train_count = 1000;
    plan.test_count = 3'000'000;
    REQUIRE_OK(Submit(plan));
  }
  Actions ignored;
};

AdmittedJob Admitted(const JobPlan& plan) {
  AdmittedJob job;
  job.plan = plan;
  job.submitted.set_name("bsp");
  job.spec.set_name("bsp");
  job.tables.emplace_back().set_name("table-0");
  job.mode = "bsp";
  job.output_directory = "/out";
  job.capability_key = CapabilityKey::FromBytes(std::string(CapabilityKey::kBytes, 'k')).value();
  return job;
}

std::vector<StoreWrite> Golden() {
  MixedCluster cluster;
  Changes all{.nodes = true};
  for (const auto& job : cluster.core().Jobs(kSaved.now)) {
    all.jobs.insert(job.id);
    all.routings.insert(job.id);
  }
  std::vector<StoreWrite> writes = EncodeChanges(cluster.core(), all, kSaved);
  const AdmittedJob job = Admitted(Plan("bsp-1", ConsistencyMode::kBsp));
  const StoreWrite admitted = EncodeAdmitted(job);
  const std::string record =
      EncodeJobRecord(cluster.core(), "bsp-1", EncodeAdmittedWithoutKey(job), kSaved);
  OrphanedLogs orphans;
  v1::RegisterRequest request;
  v1::KeptLog& log = *request.add_logs();
  log.set_job_id("bsp-1");
  log.set_unique_id("aa-bsp-1");
  log.set_record(record);
  log.set_damage("a bit has changed");
  const StoredShard shard{"bsp-1", {TableId(1), ShardId(2)}, Term(3), Position(4), "aa-bsp-1"};
  for (StoreWrite& write : orphans.Note("server-9", request, {shard}, {})) writes.push_back(write);
  writes.push_back(admitted);
  writes.push_back({kRecordKey, record});
  writes.push_back({kResumeKey, EncodeResumePoint(cluster.Complete("asp-1").back().at)});
  writes.push_back({"cluster", "aa"});
  return writes;
}

TEST_CASE("Golden store: the one of this version is made", "[.make]") {
  const char* workspace = std::getenv("BUILD_WORKSPACE_DIRECTORY");
  REQUIRE(workspace != nullptr);
  const std::string path =
      absl::StrCat(workspace, "/", kFolder, "/", FileOf(kSchemaVersion, kFieldsVersion));
  INFO(path << " is there already");
  REQUIRE_FALSE(std::filesystem::exists(path));
  REQUIRE_OK_AND_ASSIGN(const auto store, SqliteStore::Open(path));
  REQUIRE_OK(store->Write(Golden()));
}

// ---------------------------------------------------------------- how it is read

StoreRows Read(const std::string& file) {
  const testing::TemporaryFolder folder;
  const std::string path = absl::StrCat(folder.path(), "/store.db");
  std::filesystem::copy_file(absl::StrCat(kFolder, "/", file), path);
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  REQUIRE_OK_AND_ASSIGN(const auto store, SqliteStore::Open(path));
  REQUIRE_OK_AND_ASSIGN(StoreRows rows, store->Load());
  return rows;
}

// Reads every row and writes it again at the moment at which it was saved.
StoreRows Again(const StoreRows& rows) {
  StoreRows again;
  SchedulerCore core{SchedulerCore::Options()};
  const auto load = [](const std::string& bytes, auto read) {
    REQUIRE_OK(DecodeState(bytes, kSaved, [&](auto& archive) {
      read(archive);
      return absl::OkStatus();
    }));
  };
  load(rows.at("nodes"), [&](auto& archive) { CoreArchive(&core).SerializeNodes(archive); });
  load(rows.at("revisions"), [&](auto& archive) { archive(CoreArchive(&core).revisions()); });
  Changes all{.nodes = true};
  for (const auto& [key, bytes] : rows) {
    if (!absl::StartsWith(key, "job/")) continue;
    const JobId job = key.substr(4);
    REQUIRE_OK(LoadJob(rows, job, kSaved, core));
    all.jobs.insert(job);
    all.routings.insert(job);
  }
  std::vector<StoreWrite> writes = EncodeChanges(core, all, kSaved);
  REQUIRE_OK_AND_ASSIGN(const AdmittedJobs admitted, DecodeAdmitted(rows));
  for (const auto& [id, job] : admitted) writes.push_back(EncodeAdmitted(*job));
  REQUIRE_OK_AND_ASSIGN(OrphanedLogs orphans, OrphanedLogs::Load(rows));
  v1::RegisterRequest request;
  request.add_logs()->set_job_id("bsp-1");
  request.mutable_logs(0)->set_unique_id("aa-bsp-1");
  orphans.Note("server-10", request, {}, {});
  for (StoreWrite& write : orphans.Note("server-10", {}, {}, {})) writes.push_back(write);
  for (StoreWrite& write : writes) again[write.key] = *write.value;
  REQUIRE_OK_AND_ASSIGN(const ResumePoint at, DecodeResumePoint(rows.at(kResumeKey)));
  again[kResumeKey] = EncodeResumePoint(at);
  REQUIRE_OK_AND_ASSIGN(const JobRecord record, DecodeJobRecord(rows.at(kRecordKey)));
  again[kRecordKey] =
      EncodeJobRecord(core, "bsp-1", EncodeAdmittedWithoutKey(*admitted.at("bsp-1")), kSaved);
  again["cluster"] = rows.at("cluster");
  return again;
}

// True if `newer` has all fields of `older`, with the same values. What newer versions append has
// higher numbers.
bool Contains(const std::string& newer, const std::string& older) {
  if (newer == older) return true;
  UnknownFieldSet has;
  UnknownFieldSet had;
  if (!has.ParseFromString(newer) || !had.ParseFromString(older)) return false;
  if (has.field_count() < had.field_count()) return false;
  for (int i = 0; i < had.field_count(); ++i) {
    const UnknownField& a = has.field(i);
    const UnknownField& b = had.field(i);
    if (a.number() != b.number() || a.type() != b.type()) return false;
    const bool same = b.type() == UnknownField::TYPE_LENGTH_DELIMITED
                          ? Contains(a.length_delimited(), b.length_delimited())
                          : (b.type() == UnknownField::TYPE_VARINT    ? a.varint() == b.varint()
                             : b.type() == UnknownField::TYPE_FIXED64 ? a.fixed64() == b.fixed64()
                                                                      : a.fixed32() == b.fixed32());
    if (!same) return false;
  }
  return true;
}

// The bytes of a row without the version of its writer, which rows for other stores have.
std::string WithoutVersion(const std::string& key, const std::string& bytes) {
  if (key != kRecordKey && key != kResumeKey) return bytes;
  constexpr int kVersionField = 2;  // The version field of the one message in the row.
  UnknownFieldSet row;
  UnknownFieldSet fields;
  REQUIRE(row.ParseFromString(bytes));
  REQUIRE(row.field_count() == 1);
  REQUIRE(fields.ParseFromString(row.field(0).length_delimited()));
  fields.DeleteByNumber(kVersionField);
  std::string without;
  REQUIRE(fields.SerializeToString(&without));
  return without;
}

TEST_CASE("Golden store: a later version contains an earlier one only if it has all its values",
          "[scheduler]") {
  const auto bytes = [](auto... values) {
    return EncodeState(Moment(), [&](auto& archive) { archive(values...); });
  };
  const std::string old = bytes(int64_t{1}, std::string("text"), Range{1, 2});
  CHECK(Contains(bytes(int64_t{1}, std::string("text"), Range{1, 2}, 0.5), old));
  CHECK(Contains(bytes(int64_t{1}, std::string("text"), std::tuple<int, int, int>{1, 2, 3}), old));
  CHECK_FALSE(Contains(bytes(int64_t{1}, std::string("text"), Range{1, 3}), old));
  CHECK_FALSE(Contains(bytes(int64_t{1}, std::string("test"), Range{1, 2}), old));
  CHECK_FALSE(Contains(bytes(int64_t{1}, std::string("text")), old));
  CHECK_FALSE(Contains(bytes(std::string("text"), int64_t{1}, Range{1, 2}), old));
}

TEST_CASE("Golden store: each one is read, and nothing that it has is lost", "[scheduler]") {
  bool current = false;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    const std::string file = entry.path().filename();
    CAPTURE(file);
    const StoreRows rows = Read(file);
    const StoreRows again = Again(rows);
    const bool is_current = file == FileOf(kSchemaVersion, kFieldsVersion);
    for (const auto& [key, bytes] : rows) {
      CAPTURE(key);
      REQUIRE(again.contains(key));
      CHECK(Contains(WithoutVersion(key, again.at(key)), WithoutVersion(key, bytes)));
      INFO("Something was appended: raise kFieldsVersion and make its golden store.");
      if (is_current) CHECK(again.at(key).size() == bytes.size());
    }
    current = current || is_current;
  }
  INFO(
      "Make the golden store of this version: bazel run //scheduler/state:golden_store_test -- "
      "[.make]");
  CHECK(current);
}

TEST_CASE("Golden store: what the one of version 28-0 says", "[scheduler]") {
  const StoreRows rows = Read(FileOf(28, 0));
  for (const auto& [key, bytes] : rows) {
    UnknownFieldSet fields;  // It can parse what `protoc --decode_raw` can.
    CAPTURE(key);
    if (key != "cluster") CHECK(fields.ParseFromString(bytes));
  }
  Actions actions;
  REQUIRE_OK_AND_ASSIGN(const auto core, RestoreCore(rows, {}, kSaved, actions));
  // Job: state, phase, epoch, iteration, samples, results, restarts, events, tasks.
  std::string said;
  for (const JobView& job : core->Jobs(kSaved.now)) {
    absl::StrAppend(&said, job.id, " ", static_cast<int>(job.state), " ",
                    job.phase ? static_cast<int>(*job.phase) : -1, " ", job.epoch.value(), " ",
                    job.iteration, " ", job.samples_done, " ", job.results.size(), " ",
                    job.restarts, " ", job.events.size(), " ", job.tasks.size(), "\n");
  }
  // Node: incarnation, alive, draining, tasks, shards, GPUs.
  for (const NodeView& node : core->Nodes()) {
    absl::StrAppend(&said, node.id, " ", node.incarnation.value(), " ", node.alive, " ",
                    node.draining, " ", node.tasks, " ", node.shards, " ",
                    node.info.devices.gpus.size(), "\n");
  }
  CHECK(said ==
        "done-1 2 -1 1 200 2000 2 0 0 1\n"
        "failed-1 4 -1 0 294 2940 0 0 1 1\n"
        "bsp-1 1 2 0 19139 765580 0 0 6 2\n"
        "asp-1 1 2 0 58962 589620 0 3 12 2\n"
        "restored-1 1 2 0 40974 409740 0 0 1 1\n"
        "pending-1 0 -1 0 0 0 0 0 0 0\n"
        "stopped-1 3 -1 0 0 0 0 0 0 0\n"
        "tested-1 1 4 0 100 1000 0 0 0 1\n"
        "server-1 1 1 0 0 60 0\n"
        "server-2 2 1 0 0 60 0\n"
        "server-3 3 0 0 0 0 0\n"
        "worker-1 4 1 0 4 0 2\n"
        "worker-2 6 1 1 1 0 0\n");
  const JobView failed = core->Job("failed-1", kSaved.now).value();
  CHECK(failed.failure.reason == FailureReason::kTaskCrashed);
  CHECK(absl::StrContains(failed.failure.message, "signal 11"));
  const JobView done = core->Job("done-1", kSaved.now).value();
  CHECK(done.best_epoch == Epoch(1));
  CHECK(done.results.at(1).test_loss == 0.25);
  CHECK(done.has_model);
  REQUIRE_OK_AND_ASSIGN(const AdmittedJobs admitted, DecodeAdmitted(rows));
  CHECK(admitted.at("bsp-1")->plan.train_count == 100'000'000);
  CHECK(admitted.at("bsp-1")->plan.tables == std::vector<TableSize>{{3'000'000}, {8, true}});
  CHECK(admitted.at("bsp-1")->tables.at(0).name() == "table-0");
  REQUIRE_OK_AND_ASSIGN(const OrphanedLogs orphans, OrphanedLogs::Load(rows));
  CHECK(orphans.jobs().at("aa-bsp-1").record->rows.size() == 3);
  CHECK(orphans.jobs().at("aa-bsp-1").logs.at("server-9").damage == "a bit has changed");
  REQUIRE_OK_AND_ASSIGN(const ResumePoint at, DecodeResumePoint(rows.at(kResumeKey)));
  CHECK(at.batches > 0);
}

}  // namespace
}  // namespace capstan::scheduler::golden_store_test
