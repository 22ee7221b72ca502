// Tests each conversion with every field set: decoding and encoding keep all values.
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/testing/status_matchers.h"
#include "scheduler/codec/node_codec.h"
#include "scheduler/codec/shared_codec.h"
#include "scheduler/codec/status_codec.h"
#include "scheduler/codec/task_codec.h"

namespace capstan::scheduler::codec_test {
namespace {

template <typename Message>
Message Parse(const std::string& text) {
  Message message;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(text, &message));
  return message;
}

template <typename Message>
void CheckIs(const Message& message, const std::string& expected) {
  google::protobuf::util::MessageDifferencer differencer;
  std::string difference;
  differencer.ReportDifferencesToString(&difference);
  const bool same = differencer.Compare(Parse<Message>(expected), message);
  INFO(difference);
  CHECK(same);
}

std::shared_ptr<const AdmittedJob> SmallJob() {
  auto job = std::make_shared<AdmittedJob>();
  job->plan.id = "job-1";
  job->plan.consistency.slots = 4;
  job->plan.epochs = 3;
  job->plan.replicas = 2;
  job->plan.log = true;
  job->plan.objective = Objective::kClicks;
  job->mode = "ssp(2)";
  job->output_directory = "/out";
  job->submitted.set_name("as submitted");
  job->spec = Parse<v1::JobSpec>(R"pb(name: "job"
                                      training { seed: 9 }
                                      optimizer {
                                        learning_rate: 0.5
                                        sgd {}
                                      }
                                      consistency { ssp { staleness_bound: 2 } })pb");
  job->tables.push_back(
      Parse<v1::TableSpec>(R"pb(name: "parameters" elements: 32 rule: OPTIMIZER)pb"));
  return job;
}

std::shared_ptr<const Routing> SmallRouting() {
  return std::make_shared<const Routing>(Routing{
      "job-1",
      Generation(1),
      {{{TableId(0), ShardId(1)}, {16, 32}, 1, Term(7), {{0, true}, {2, false}}, true, true}},
      {{"server-1", "h:1", Incarnation(5)},
       {"server-2", "h:2", Incarnation(6)},
       {"server-3", "h:3", Incarnation(8)}}});
}

constexpr char kSmallRouting[] = R"pb(
  routing {
    job_id: "job-1"
    generation: 1
    shards {
      shard: 1
      element_begin: 16
      element_end: 32
      server: 1
      term: 7
      replicas { server: 0 in_sync: true }
      replicas { server: 2 }
      hands_over: true
      awaits_log: true
    }
    servers { node_id: "server-1" address: "h:1" incarnation: 5 }
    servers { node_id: "server-2" address: "h:2" incarnation: 6 }
    servers { node_id: "server-3" address: "h:3" incarnation: 8 }
  })pb";

TEST_CASE("Codec: a registration", "[scheduler]") {
  auto request = Parse<v1::RegisterRequest>(R"pb(
    protocol_version: PROTOCOL_VERSION_CURRENT
    role: WORKER
    name: "worker-1"
    address: "h:9"
    task_capacity: 3
    hostname: "host"
    pid: 77
    devices { unusable: "no GPU" }
    version: "0.1"
    stored { job_id: "job-1" table: 2 shard: 3 term: 4 position: 55 incarnation: 6 })pb");
  REQUIRE_OK_AND_ASSIGN(const NodeInfo info, DecodeNodeInfo(request));
  CHECK(info.name == "worker-1");
  CHECK(info.role == Role::kWorker);
  CHECK(info.address == "h:9");
  CHECK(info.task_capacity == 3);
  CHECK(info.hostname == "host");
  CHECK(info.pid == 77);
  CHECK(info.version == "0.1");
  CHECK(info.devices.unusable == "no GPU");
  CHECK(info.stored ==
        std::vector<StoredShard>{
            {"job-1", {TableId(2), ShardId(3)}, Term(4), Position(55), "", Incarnation(6)}});

  CHECK(info.plugin_rules.empty());
  request.add_plugin_rules()->set_name("signum");
  CHECK_STATUS(DecodeNodeInfo(request), absl::StatusCode::kInvalidArgument,
               "plugin_rules: \"signum\" with a digest of 0 characters, expected a name of at most "
               "256 and 64");
  const std::string digest(64, 'a');
  request.mutable_plugin_rules(0)->set_digest(digest);
  REQUIRE_OK_AND_ASSIGN(const NodeInfo with_rule, DecodeNodeInfo(request));
  CHECK(with_rule.plugin_rules == std::vector<PluginRule>{{"signum", digest}});
  for (int i = 0; i < 1000; ++i) *request.add_plugin_rules() = request.plugin_rules(0);
  CHECK_STATUS(DecodeNodeInfo(request), absl::StatusCode::kInvalidArgument,
               "plugin_rules: 1001, expected at most 1000");
  request.clear_plugin_rules();

  v1::RegisterResponse response;
  EncodeRegistration({"worker-1", Incarnation(4), absl::Seconds(5), absl::Milliseconds(200),
                      absl::Milliseconds(500)},
                     response);
  CheckIs(response, R"pb(node_id: "worker-1"
                         incarnation: 4
                         lease_ms: 5000
                         sync_interval_ms: 200
                         read_lease_ms: 500
                         protocol_version: PROTOCOL_VERSION_CURRENT)pb");

  for (const std::string& address :
       {std::string("h"), std::string("h:0"), std::string("h:65536"), std::string("unix:/tmp/s"),
        std::string("a/b:1"), std::string(300, 'h') + ":1"}) {
    request.set_address(address);
    CHECK_STATUS(DecodeNodeInfo(request), absl::StatusCode::kInvalidArgument, "address \"");
  }
  request.set_address("h:9");
  request.set_role(v1::ROLE_UNSPECIFIED);
  CHECK_STATUS(DecodeNodeInfo(request), absl::StatusCode::kInvalidArgument, "role: 0");
  request.set_protocol_version(static_cast<v1::ProtocolVersion>(7));
  CHECK_STATUS(DecodeNodeInfo(request), absl::StatusCode::kFailedPrecondition,
               "protocol version 7 meets a scheduler of version 1");
}

TEST_CASE("Codec: a node's report", "[scheduler]") {
  auto request = Parse<v1::SyncNodeRequest>(R"pb(
    node_id: "n"
    incarnation: 3
    generation_seen: 8
    revision_seen { scheduler: 70 count: 12 }
    leaving: true
    tables {
      job_id: "job-1"
      routing_generation: 1
      membership_generation: 4
      failure { reason: OUT_OF_MEMORY message: "8 GiB" }
      replicas { table: 1 shard: 2 term: 3 node_id: "n2" incarnation: 4 state: FILLED }
      replicas { table: 1 shard: 3 term: 5 node_id: "n3" incarnation: 6 state: UNREACHABLE }
      replicas { table: 9 shard: 9 term: 9 node_id: "n9" incarnation: 9 }
      making { made: 3 total: 8 progress: 40 }
    }
    tasks {
      job_id: "job-1"
      rank: 2
      incarnation: 9
      exited: true
      exit_code: 3
      signal: 11
      last_lines: "x"
    })pb");
  REQUIRE_OK_AND_ASSIGN(const NodeReport report, DecodeNodeReport(request));
  CHECK(report.node == "n");
  CHECK(report.incarnation == Incarnation(3));
  CHECK(report.generation_seen == Generation(8));
  CHECK(report.revision_seen == StoreRevision{70, 12});
  CHECK(report.leaving);
  REQUIRE(report.tables.size() == 1);
  CHECK(report.tables[0].job == "job-1");
  CHECK(report.tables[0].routing == Generation(1));
  CHECK(report.tables[0].membership == Generation(4));
  CHECK(report.tables[0].failure == Failure{FailureReason::kOutOfMemory, "8 GiB"});
  using ReplicaState = ReplicaReport::State;
  CHECK(report.tables[0].replicas ==
        std::vector<ReplicaReport>{
            {{TableId(1), ShardId(2)}, Term(3), "n2", Incarnation(4), ReplicaState::kFilled},
            {{TableId(1), ShardId(3)}, Term(5), "n3", Incarnation(6), ReplicaState::kUnreachable}});
  CHECK(report.tables[0].making == Making{.made = 3, .total = 8, .progress = 40});
  REQUIRE(report.tasks.size() == 1);
  CHECK(report.tasks[0].task == TaskKey{"job-1", Rank(2), Incarnation(9)});
  CHECK(report.tasks[0].exited);
  CHECK(report.tasks[0].exit.exit_code == 3);
  CHECK(report.tasks[0].exit.signal == 11);
  CHECK(report.tasks[0].exit.last_lines == "x");

  request.mutable_tasks(0)->set_rank(-1);
  CHECK_STATUS(DecodeNodeReport(request), absl::StatusCode::kInvalidArgument, "rank -1 of job-1");
  request.mutable_tables(0)->mutable_making()->set_made(9);
  CHECK_STATUS(DecodeNodeReport(request), absl::StatusCode::kInvalidArgument,
               "tables: job-1: making: 9 of 8 shards");
  request.mutable_tables(0)->clear_making();
  request.mutable_tasks(0)->set_rank(0);
  REQUIRE_OK_AND_ASSIGN(const NodeReport idle, DecodeNodeReport(request));
  CHECK_FALSE(idle.tables[0].making.has_value());
}

TEST_CASE("Codec: a node's desired state", "[scheduler]") {
  const AdmittedJobs jobs = {{"job-1", SmallJob()}};
  NodeReply reply{.ticket = Ticket(1), .status = absl::OkStatus(), .generation = Generation(6)};
  reply.tables.push_back(
      {SmallRouting(),
       {.generation = Generation(3),
        .members = {{Rank(1), Incarnation(7), true, Iteration(12)}},
        .clock_seconds = 40'500},
       {.restore_term = Term(5), .restore_folder = "/ckpt/4", .log_term = Term(6)},
       {CheckpointId(8), "/ckpt/8", CheckpointId(7), {11, 12}}});
  reply.may_stop = true;
  reply.revision = {70, 13};
  reply.tasks.push_back({"job-1", Rank(1), Incarnation(7)});
  reply.gpus.push_back({reply.tasks[0], {2, 3}});
  v1::SyncNodeResponse response;
  EncodeNodeReply(reply, jobs, {}, response);
  CheckIs(response, std::string(R"pb(
                      generation: 6
                      may_stop: true
                      revision { scheduler: 70 count: 13 }
                      tables { job_id: "job-1"
                               tables { name: "parameters" elements: 32 rule: OPTIMIZER }
                               optimizer {
                                 learning_rate: 0.5
                                 sgd {}
                               }
                               consistency { ssp { staleness_bound: 2 } }
                               slots: 4
                               seed: 9
                               durability: LOG
                               replicas: 2
                               restore_term: 5
                               restore_folder: "/ckpt/4"
                               log_term: 6
                               checkpoint {
                                 checkpoint_id: 8
                                 folder: "/ckpt/8"
                                 base_id: 7
                                 readers: [ 11, 12 ]
                               }
                               membership {
                                 generation: 3
                                 members { rank: 1 incarnation: 7 active: true start_iteration: 12 }
                                 clock_seconds: 40500
                               })pb") +
                        kSmallRouting + R"pb(
    }
    tasks { job_id: "job-1" rank: 1 incarnation: 7 gpus: 2 gpus: 3
            spec { name: "job" training { seed: 9 } optimizer { learning_rate: 0.5 sgd {} }
                   consistency { ssp { staleness_bound: 2 } } } })pb");
}

TEST_CASE("Codec: a task's report", "[scheduler]") {
  auto request = Parse<v1::SyncTaskRequest>(R"pb(
    job_id: "job-1"
    rank: 2
    incarnation: 9
    assignment_seen: 5
    routing_seen: 1
    revision_seen { scheduler: 70 count: 12 }
    idle: true
    progress {
      iterations: 40
      slots { slot: 3 iteration_done: 39 }
      samples { lease_id: 6 position_done: 640 loss_sum: 1.5 correct: 600 }
      samples_total: 2560
      loss_total: 99.5
      correct_total: 2000
      staleness_counts: 30
      staleness_counts: 10
      rows_cached: 70
      rows_pulled: 20
      exported: true
    }
    wait {
      what: "pull"
      iteration: 41
      waited_ms: 1200
      peer: "server-1"
      waiting_on { table: 1 shard: 2 iteration: 38 ranks: 0 ranks: 3 slots: 7 }
    }
    failure { reason: DIVERGED message: "conv1" gpus_lost: 3 gpus_lost: 1 }
    preparing: true
    activity { what: "examples read" done: 300 })pb");
  REQUIRE_OK_AND_ASSIGN(const TaskReport report, DecodeTaskReport(request));
  CHECK(report.task == TaskKey{"job-1", Rank(2), Incarnation(9)});
  CHECK(report.assignment_seen == Generation(5));
  CHECK(report.routing_seen == Generation(1));
  CHECK(report.revision_seen == StoreRevision{70, 12});
  CHECK(report.idle);
  CHECK(report.iterations == Iteration(40));
  CHECK(report.slots[0].slot == SlotId(3));
  CHECK(report.slots[0].done == Iteration(39));
  CHECK(report.samples[0].lease == LeaseId(6));
  CHECK(report.samples[0].position_done == 640);
  CHECK(report.samples[0].loss_sum == 1.5);
  CHECK(report.samples[0].correct == 600);
  CHECK(report.totals.samples == 2560);
  CHECK(report.totals.loss == 99.5);
  CHECK(report.totals.correct == 2000);
  CHECK(report.totals.staleness_counts == std::vector<int64_t>{30, 10});
  CHECK(std::pair(report.totals.rows_cached, report.totals.rows_pulled) == std::pair(70L, 20L));
  CHECK(report.exported);
  CHECK(report.failure == Failure{FailureReason::kDiverged, "conv1"});
  CHECK(report.gpus_lost == std::vector<int>{3, 1});
  v1::Wait wait;
  EncodeWait(report.wait, wait);
  CHECK(google::protobuf::util::MessageDifferencer::Equals(wait, request.wait()));
  CHECK(report.preparing);
  v1::Activity activity;
  EncodeActivity(report.activity, activity);
  CHECK(google::protobuf::util::MessageDifferencer::Equals(activity, request.activity()));

  request.mutable_progress()->set_loss_total(std::numeric_limits<double>::quiet_NaN());
  CHECK_STATUS(DecodeTaskReport(request), absl::StatusCode::kInvalidArgument, "loss_total: nan");
  request.set_rank(-2);
  CHECK_STATUS(DecodeTaskReport(request), absl::StatusCode::kInvalidArgument, "rank: -2");
}

TEST_CASE("Codec: a task's assignment, with the tables the first time", "[scheduler]") {
  TaskReply reply{
      .ticket = Ticket(1), .status = absl::OkStatus(), .job = "job-1", .has_assignment = true};
  reply.assignment = {.generation = Generation(4),
                      .phase = TaskPhase::kTrain,
                      .epoch = Epoch(2),
                      .slots = {{SlotId(1), Iteration(10), Iteration(20)}},
                      .samples = {{LeaseId(3), {64, 128}}},
                      .start_iteration = Iteration(11),
                      .epoch_first_iteration = Iteration(10),
                      .export_path = "/out",
                      .paused = true,
                      .staged_path = "/out/.export-1-2"};
  reply.routing = SmallRouting();
  reply.first_routing = true;
  reply.revision = {70, 13};
  v1::SyncTaskResponse response;
  EncodeTaskReply(reply, *SmallJob(), response);
  CheckIs(response, std::string(R"pb(
                      assignment {
                        generation: 4
                        phase: TRAIN
                        epoch: 2
                        slots { slot: 1 iteration_begin: 10 iteration_end: 20 }
                        samples { lease_id: 3 begin: 64 end: 128 }
                        start_iteration: 11
                        epoch_first_iteration: 10
                        export_path: "/out"
                        paused: true
                        staged_path: "/out/.export-1-2"
                      }
                      revision { scheduler: 70 count: 13 }
                      tables { name: "parameters" elements: 32 rule: OPTIMIZER })pb") +
                        kSmallRouting);

  v1::SyncTaskResponse nothing;
  EncodeTaskReply({.ticket = Ticket(1), .status = absl::OkStatus(), .job = "job-1"}, *SmallJob(),
                  nothing);
  CheckIs(nothing, "revision {}");
}

Instant At(int seconds) { return Instant::FromOrigin(absl::Seconds(seconds)); }

JobView SmallView() {
  JobView view{.id = "job-1", .state = JobState::kFailed, .failure = {FailureReason::kHang, "h"}};
  view.detail = "d";
  view.revision = 9;
  view.submitted = At(1);
  view.started = At(2);
  view.ended = At(3);
  view.phase = JobPhase::kTraining;
  view.epoch = Epoch(1);
  view.iteration = 40;
  view.samples_done = 100;
  view.samples_total = 300;
  view.samples_per_second = 12.5;
  view.loss = 0.5;
  view.accuracy = 0.75;
  view.results = {{Epoch(0), 1.0, 0.5, 2.0, 0.25, 20, absl::Seconds(4), 0.75, 1.5}};
  view.staleness_counts = {3, 1};
  view.rows_cached = 70;
  view.rows_pulled = 20;
  view.restarts = 2;
  view.tasks = {{Rank(1),
                 Incarnation(7),
                 "worker-1",
                 "w:1",
                 "waiting",
                 Iteration(5),
                 50,
                 At(9),
                 {.what = "pull", .iteration = Iteration(6), .waited = absl::Seconds(1)},
                 {.what = "bytes written", .done = 12}}};
  return view;
}

TEST_CASE("Codec: a job's status says where its model is kept, and until when", "[scheduler]") {
  JobView view = SmallView();
  view.model_folder = "/new";
  view.model_kept_until = At(5);
  v1::JobStatus status;
  EncodeJobStatus(view, *SmallJob(), Calendar(At(0), absl::FromUnixSeconds(1000)), At(10),
                  StatusDetail::kWhole, status);
  CHECK(status.output_directory() == "/out");
  CHECK(status.model_directory() == "/new");
  CHECK(status.model_kept_until_unix_ms() == 1005000);
}

TEST_CASE("Codec: the job of a program has an accuracy once the program has counted one",
          "[scheduler]") {
  JobView view = SmallView();
  AdmittedJob job = *SmallJob();
  const auto objective = [&] {
    v1::JobStatus status;
    EncodeJobStatus(view, job, Calendar(At(0), absl::FromUnixSeconds(1000)), At(10),
                    StatusDetail::kList, status);
    return status.objective();
  };
  view.accuracy = view.results[0].train_accuracy = view.results[0].test_accuracy = 0;
  CHECK(objective() == v1::CLICKS);
  job.spec.mutable_program();
  CHECK(objective() == v1::UNLABELED);
  view.accuracy = 0.1;
  CHECK(objective() == v1::CLICKS);
  view.accuracy = 0;
  view.results[0].train_accuracy = 0.1;
  CHECK(objective() == v1::CLICKS);
  view.results[0].train_accuracy = 0;
  view.results[0].test_accuracy = 0.1;
  CHECK(objective() == v1::CLICKS);
}

TEST_CASE("Codec: a job's status", "[scheduler]") {
  const JobView view = SmallView();
  const Calendar calendar(At(0), absl::FromUnixSeconds(1000));
  v1::JobStatus status;
  EncodeJobStatus(view, *SmallJob(), calendar, At(10), StatusDetail::kWhole, status);
  CheckIs(status, R"pb(
    job_id: "job-1"
    state: FAILED
    failure { reason: HANG message: "h" }
    detail: "d"
    revision: 9
    submitted_unix_ms: 1001000
    started_unix_ms: 1002000
    ended_unix_ms: 1003000
    mode: "ssp(2)"
    objective: CLICKS
    epoch: 2
    epochs: 3
    iteration: 40
    samples_done: 100
    samples_total: 300
    samples_per_second: 12.5
    loss: 0.5
    accuracy: 0.75
    staleness_counts: [ 3, 1 ]
    rows_cached: 70
    rows_pulled: 20
    restarts: 2
    results {
      epoch: 1
      train_loss: 1
      train_accuracy: 0.5
      test_loss: 2
      test_accuracy: 0.25
      test_samples: 20
      seconds: 4
      test_auc: 0.75
      test_rmse: 1.5
    }
    tasks {
      rank: 1
      incarnation: 7
      node_id: "worker-1"
      address: "w:1"
      state: "waiting"
      iteration: 5
      samples_total: 50
      last_report_ms: 1000
      wait { what: "pull" iteration: 6 waited_ms: 1000 }
      activity { what: "bytes written" done: 12 }
    }
    output_directory: "/out"
    model_directory: "/out"
    phase: "training"
    spec { name: "as submitted" }
    effective_spec {
      name: "job"
      training { seed: 9 }
      optimizer {
        learning_rate: 0.5
        sgd {}
      }
      consistency { ssp { staleness_bound: 2 } }
    })pb");
  v1::JobStatus entry;
  EncodeJobStatus(view, *SmallJob(), calendar, At(10), StatusDetail::kList, entry);
  CHECK(entry.tasks().empty());
  CHECK(entry.results().empty());
  CHECK_FALSE(entry.has_spec());
}

TEST_CASE("Codec: a node's status", "[scheduler]") {
  NodeView view{.id = "worker-1",
                .info = {"worker-1", Role::kWorker, "h:1", 4, "host", 77, "0.1", {}, {{{3, "G"}}}},
                .incarnation = Incarnation(3),
                .alive = true,
                .draining = true,
                .last_seen = Instant::FromOrigin(absl::Seconds(9)),
                .tasks = 2,
                .shards = 5,
                .gpus_taken = {3}};
  v1::NodeStatus status;
  EncodeNodeStatus(view, Instant::FromOrigin(absl::Seconds(10)), status);
  CheckIs(status, R"(node_id: "worker-1" role: WORKER address: "h:1" hostname: "host" pid: 77
                     incarnation: 3 alive: true last_seen_ms: 1000 task_capacity: 4 tasks: 2
                     shards: 5 draining: true version: "0.1"
                     gpus_taken: 3 devices { gpus { index: 3 name: "G" } })");
}

TEST_CASE("Codec: a server's status has its update rules", "[scheduler]") {
  NodeView view{.id = "server-1", .alive = true};
  view.info.plugin_rules = {{"prox", "12ab"}, {"signum", "34cd"}};
  v1::NodeStatus status;
  EncodeNodeStatus(view, Instant(), status);
  REQUIRE(status.plugin_rules_size() == 2);
  CheckIs(status.plugin_rules(1), R"pb(name: "signum" digest: "34cd")pb");
}

TEST_CASE("Codec: how far a node is drained", "[scheduler]") {
  v1::DrainNodeResponse response;
  EncodeDrainReply({Ticket(1), true, 3, 2, "d"}, response);
  CheckIs(response, R"pb(safe_to_stop: true shards: 3 tasks: 2 detail: "d")pb");
}

TEST_CASE("Codec: a text that is cut within a character can be read again", "[scheduler]") {
  v1::Failure failure;
  failure.set_reason(v1::Failure::HANG);
  failure.set_message(std::string((16 << 10) - 1, 'a') + "é");
  JobView view{.id = "job-1", .state = JobState::kFailed, .failure = DecodeFailure(failure)};
  SECTION("a failure") {}
  SECTION("an event, and failures that older schedulers have cut") {
    view.failure.message = std::string(100, 'a') + "\xc3";
    view.events = {{.kind = JobEventKind::kTaskDied, .text = std::string(100, 'a') + "\xc3..."}};
  }
  v1::JobStatus status;
  EncodeJobStatus(view, *SmallJob(), Calendar(At(0), absl::FromUnixSeconds(1000)), At(10),
                  StatusDetail::kWhole, status);
  CHECK(v1::JobStatus().ParseFromString(status.SerializeAsString()));
}

}  // namespace
}  // namespace capstan::scheduler::codec_test
