#include "scheduler/scheduler_service.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/net/grpc_types/grpc_status.h"
#include "common/net/node/node_connection.h"
#include "common/testing/status_matchers.h"
#include "scheduler/testing/loopback.h"
#include "scheduler/testing/small_job.h"

namespace capstan::scheduler::scheduler_service_test {
namespace {

using testing::Loopback;

TEST_CASE("Scheduler service: a submitted job reaches the servers and the workers", "[scheduler]") {
  Loopback loopback;
  const v1::RegisterResponse server = loopback.Join(v1::SERVER, "server-1");
  const v1::RegisterResponse worker = loopback.Join(v1::WORKER, "");
  CHECK(worker.node_id() == "worker-1");
  CHECK(worker.lease_ms() == 600'000);
  REQUIRE_OK_AND_ASSIGN(const std::string job,
                        loopback.Submit(testing::MakeSmallJob(loopback.folder.path())));
  CHECK(job == "small-1");

  REQUIRE_OK_AND_ASSIGN(const v1::SyncNodeResponse tables, loopback.Sync(server, 0));
  REQUIRE(tables.tables_size() == 1);
  CHECK(tables.tables(0).tables(0).elements() == 170);
  CHECK(tables.tables(0).routing().shards_size() == 1);
  REQUIRE_OK_AND_ASSIGN(const v1::SyncNodeResponse tasks, loopback.Sync(worker, 0));
  REQUIRE(tasks.tasks_size() == 1);
  CHECK(tasks.tasks(0).spec().training().batch_size() == 10);

  const v1::JobStatus status = loopback.Get(job);
  CHECK(status.state() == v1::RUNNING);
  CHECK(status.phase() == "placing");
  CHECK(status.mode() == "ssp(2)");
  CHECK(status.submitted_unix_ms() > 0);
  CHECK(status.output_directory() == loopback.folder.path() + "/jobs/small-1");

  v1::ListNodesResponse nodes;
  REQUIRE_OK(loopback.Ask(&v1::Scheduler::Stub::ListNodes, v1::ListNodesRequest(), &nodes));
  REQUIRE(nodes.nodes_size() == 2);
  CHECK(nodes.nodes(0).shards() == 1);
  CHECK(nodes.nodes(1).tasks() == 1);

  v1::GetTablesRequest which;
  which.set_job_id(job);
  v1::GetTablesResponse held;
  REQUIRE_OK(loopback.Ask(&v1::Scheduler::Stub::GetTables, which, &held));
  CHECK(held.routing().servers(0).node_id() == "server-1");
}

TEST_CASE(
    "Scheduler service: a held sync is answered when the job arrives, a held watch when it changes",
    "[scheduler]") {
  Loopback loopback;
  const v1::RegisterResponse server = loopback.Join(v1::SERVER, "server-1");
  loopback.Join(v1::WORKER, "worker-1");
  absl::StatusOr<v1::SyncNodeResponse> answer = absl::UnknownError("no answer");
  std::thread held([&] { answer = loopback.Sync(server, 1); });
  REQUIRE_OK_AND_ASSIGN(const std::string job,
                        loopback.Submit(testing::MakeSmallJob(loopback.folder.path())));
  held.join();
  REQUIRE_OK(answer);
  CHECK(answer->tables_size() == 1);

  v1::JobStatus seen;
  const uint64_t revision = loopback.Get(job).revision();
  std::thread watcher([&] { seen = loopback.Get(job, revision, 60'000); });
  v1::SyncNodeRequest failed;
  v1::TableState& table = *failed.add_tables();
  table.set_job_id(job);
  table.mutable_failure()->set_reason(v1::Failure::OUT_OF_MEMORY);
  table.mutable_failure()->set_message("no room");
  REQUIRE_OK(loopback.Sync(server, answer->generation(), failed));
  watcher.join();
  CHECK(seen.state() == v1::FAILED);
  CHECK(seen.failure().message() == "server-1: no room");
  // A client that reads the end finds the files.
  CHECK(std::filesystem::exists(seen.output_directory() + "/job.json"));
  CHECK(std::filesystem::exists(seen.output_directory() + "/curve.svg"));
}

TEST_CASE("Scheduler service: the timer answers a held sync after the sync interval",
          "[scheduler]") {
  Loopback loopback(absl::Milliseconds(20));
  const v1::RegisterResponse server = loopback.Join(v1::SERVER, "server-1");
  REQUIRE_OK_AND_ASSIGN(const v1::SyncNodeResponse first, loopback.Sync(server, 0));
  REQUIRE_OK_AND_ASSIGN(const v1::SyncNodeResponse same, loopback.Sync(server, first.generation()));
  CHECK(same.generation() == first.generation());
}

TEST_CASE("Scheduler service: a pending job says why, is listed, and can be stopped",
          "[scheduler]") {
  Loopback loopback;
  REQUIRE_OK_AND_ASSIGN(const std::string job,
                        loopback.Submit(testing::MakeSmallJob(loopback.folder.path())));
  CHECK(loopback.Get(job).state() == v1::PENDING);
  CHECK_THAT(loopback.Get(job).detail(), Catch::Contains("needs 1 worker, 0 are free of 0 alive"));
  v1::ListJobsResponse jobs;
  REQUIRE_OK(loopback.Ask(&v1::Scheduler::Stub::ListJobs, v1::ListJobsRequest(), &jobs));
  CHECK(jobs.jobs_size() == 1);
  v1::StopJobRequest stop;
  stop.set_job_id(job);
  v1::StopJobResponse stopped;
  REQUIRE_OK(loopback.Ask(&v1::Scheduler::Stub::StopJob, stop, &stopped));
  CHECK(stopped.state() == v1::STOPPED);
  v1::GetTablesRequest which;
  which.set_job_id(job);
  v1::GetTablesResponse held;
  CHECK_STATUS(loopback.Ask(&v1::Scheduler::Stub::GetTables, which, &held),
               absl::StatusCode::kFailedPrecondition, "stopped before it started");
}

TEST_CASE("Scheduler service: bad requests are refused with what was expected", "[scheduler]") {
  Loopback loopback;
  v1::JobSpec spec = testing::MakeSmallJob(loopback.folder.path());
  spec.mutable_training()->set_epochs(0);
  CHECK_STATUS(loopback.Submit(spec), absl::StatusCode::kInvalidArgument, "training.epochs");
  v1::SubmitJobRequest old;
  v1::SubmitJobResponse response;
  CHECK_STATUS(loopback.Ask(&v1::Scheduler::Stub::SubmitJob, old, &response),
               absl::StatusCode::kFailedPrecondition, "protocol version 0");
  v1::GetJobRequest get;
  get.set_job_id("none-1");
  v1::GetJobResponse got;
  CHECK_STATUS(loopback.Ask(&v1::Scheduler::Stub::GetJob, get, &got), absl::StatusCode::kNotFound,
               "\"none-1\"");
  get.set_wait_limit_ms(60'001);
  CHECK_STATUS(loopback.Ask(&v1::Scheduler::Stub::GetJob, get, &got),
               absl::StatusCode::kInvalidArgument, "wait_limit_ms: 60001");
}

TEST_CASE("Scheduler service: what cannot be written is not said, and the process is to end",
          "[scheduler]") {
  Loopback loopback;
  const v1::RegisterResponse server = loopback.Join(v1::SERVER, "server-1");
  loopback.Join(v1::WORKER, "worker-1");
  loopback.store.FailNext(absl::ResourceExhaustedError("disk full"));
  CHECK_STATUS(loopback.Submit(testing::MakeSmallJob(loopback.folder.path())),
               absl::StatusCode::kUnavailable, "disk full");
  loopback.ended.WaitForNotification();
  CHECK_STATUS(loopback.fatal, absl::StatusCode::kResourceExhausted, "disk full");
  // Calls about earlier durable state fail, too, because the core is ahead of the store.
  CHECK_STATUS(loopback.Sync(server, 0), absl::StatusCode::kUnavailable, "disk full");

  loopback.Restart();
  v1::ListJobsResponse jobs;
  REQUIRE_OK(loopback.Ask(&v1::Scheduler::Stub::ListJobs, v1::ListJobsRequest(), &jobs));
  CHECK(jobs.jobs_size() == 0);
  REQUIRE_OK(loopback.Sync(server, 0));
}

TEST_CASE("SchedulerService: nodes tell their counts of calls, and users see them", "[scheduler]") {
  Loopback loopback;
  const v1::RegisterResponse server = loopback.Join(v1::SERVER, "server-1");
  v1::SyncNodeRequest sync;
  sync.set_node_id(server.node_id());
  sync.set_incarnation(server.incarnation());
  v1::CallCount& refused = *sync.add_calls();
  refused.set_method("/capstan.v1.ParameterServer/Push");
  refused.set_outcome("gate");
  refused.set_calls(3);
  sync.add_calls()->set_method(std::string(1000, 'x'));  // Nobody's method.
  const auto listed = [&loopback] {
    v1::ListNodesResponse nodes;
    REQUIRE_OK(loopback.Ask(&v1::Scheduler::Stub::ListNodes, v1::ListNodesRequest(), &nodes));
    REQUIRE(nodes.nodes_size() == 1);
    return nodes.nodes(0);
  };
  v1::SyncNodeResponse response;
  REQUIRE_OK(loopback.Ask(&v1::Scheduler::Stub::SyncNode, sync, &response));
  REQUIRE(listed().calls_size() == 1);
  CHECK(listed().calls(0).calls() == 3);
  REQUIRE_OK(loopback.Sync(server, 0));  // Without counts: those before stay.
  CHECK(listed().calls_size() == 1);
}

bool IsAlive(Loopback& loopback, const std::string& node) {
  v1::ListNodesResponse nodes;
  REQUIRE_OK(loopback.Ask(&v1::Scheduler::Stub::ListNodes, v1::ListNodesRequest(), &nodes));
  for (const v1::NodeStatus& status : nodes.nodes()) {
    if (status.node_id() == node) return status.alive();
  }
  return false;
}

// Checks that server-1, which is silent, soon dies, and that server-2, which is `lively`, stays
// alive. server-2 syncs repeatedly, because the scheduler may see its broken call after a sync.
void CheckThatOnlySilentDies(Loopback& loopback, const std::string& job,
                             const v1::RegisterResponse& lively) {
  std::atomic<bool> stop = false;
  std::thread syncing([&] {
    while (!stop) loopback.Sync(lively, /*seen=*/0).status().IgnoreError();
  });
  // Poll until server-1 is dead.
  const absl::Time limit = absl::Now() + absl::Seconds(30);
  while (IsAlive(loopback, "server-1") && absl::Now() < limit) {
    // Wait for a change of the job, whose reason to wait changes when a server dies.
    loopback.Get(job, loopback.Get(job).revision(), 200);
  }
  CHECK_FALSE(IsAlive(loopback, "server-1"));
  CHECK(IsAlive(loopback, "server-2"));
  stop = true;
  loopback.service->Stop();
  syncing.join();
}

TEST_CASE("Scheduler service: a node whose held call is cut is dead soon, unless it calls again",
          "[scheduler]") {
  Loopback loopback(absl::Seconds(30), absl::Milliseconds(500));
  const v1::RegisterResponse silent = loopback.Join(v1::SERVER, "server-1");
  const v1::RegisterResponse lively = loopback.Join(v1::SERVER, "server-2");
  const auto cut_a_call = [&](const v1::RegisterResponse& node) {
    v1::SyncNodeRequest request;
    request.set_node_id(node.node_id());
    request.set_incarnation(node.incarnation());
    request.set_generation_seen(1);
    v1::SyncNodeResponse response;
    grpc::ClientContext context;
    SetDeadline(context, absl::Milliseconds(100));
    const absl::Status status =
        FromGrpcStatus(loopback.stub->SyncNode(&context, request, &response));
    CHECK(absl::IsDeadlineExceeded(status));
  };
  REQUIRE_OK_AND_ASSIGN(const std::string job,
                        loopback.Submit(testing::MakeSmallJob(loopback.folder.path())));
  cut_a_call(silent);
  cut_a_call(lively);
  CheckThatOnlySilentDies(loopback, job, lively);
}

TEST_CASE("Scheduler service: a node that is killed between two syncs is dead soon",
          "[scheduler]") {
  Loopback loopback(absl::Seconds(30), absl::Milliseconds(500));
  const v1::RegisterResponse killed = loopback.Join(v1::SERVER, "server-1");
  const v1::RegisterResponse lively = loopback.Join(v1::SERVER, "server-2");
  REQUIRE_OK_AND_ASSIGN(const std::string job,
                        loopback.Submit(testing::MakeSmallJob(loopback.folder.path())));
  {
    NodeConnection other(loopback.stub.get());
    other.Keep("server-2", Incarnation(lively.incarnation()));
    NodeConnection connection(loopback.stub.get());
    connection.Keep("server-1", Incarnation(killed.incarnation()));
    connection.Keep("server-1", Incarnation(killed.incarnation()));
    loopback.Get(job, 0, 0);  // A later call on the same channel, so the connections are held now.
  }
  CheckThatOnlySilentDies(loopback, job, lively);
}

TEST_CASE("Scheduler service: only live nodes are connected, each once, while they live (issue 20)",
          "[scheduler]") {
  Loopback loopback(absl::Seconds(30), absl::Milliseconds(500));
  const v1::RegisterResponse node = loopback.Join(v1::SERVER, "server-1");
  struct Held {
    grpc::ClientContext context;
    v1::HoldConnectionRequest request;
    v1::HoldConnectionResponse response;
    std::optional<absl::Status> ended;  // Guarded by `mutex`.
  };
  absl::Mutex mutex;
  const auto hold = [&](Held& connection, const std::string& name, uint64_t incarnation) {
    connection.request.set_node_id(name);
    connection.request.set_incarnation(incarnation);
    loopback.stub->async()->HoldConnection(&connection.context, &connection.request,
                                           &connection.response,
                                           [&mutex, &connection](const grpc::Status& status) {
                                             absl::MutexLock lock(&mutex);
                                             connection.ended = FromGrpcStatus(status);
                                           });
  };
  // Returns the first of `connections` that ends.
  const auto first_of = [&mutex](const std::vector<const Held*>& connections) {
    const auto ended = [](const Held* connection) { return connection->ended.has_value(); };
    const auto any = [&] { return std::any_of(connections.begin(), connections.end(), ended); };
    absl::MutexLock lock(&mutex);
    REQUIRE(mutex.AwaitWithTimeout(absl::Condition(&any), absl::Seconds(20)));
    return *std::find_if(connections.begin(), connections.end(), ended);
  };
  Held nobody, dead, one, other;
  hold(nobody, "server-9", 1);
  CHECK_STATUS(*first_of({&nobody})->ended, absl::StatusCode::kNotFound,
               "no live node \"server-9\" of incarnation 1 to connect");
  hold(dead, "server-1", node.incarnation() + 1);
  CHECK(absl::IsNotFound(*first_of({&dead})->ended));
  // Either call may come first, because different threads handle them.
  hold(one, "server-1", node.incarnation());
  hold(other, "server-1", node.incarnation());
  const Held* const first = first_of({&one, &other});
  CHECK_STATUS(*first->ended, absl::StatusCode::kCancelled, "connected anew");
  const Held* const second = first == &one ? &other : &one;
  {
    absl::MutexLock lock(&mutex);
    CHECK_FALSE(second->ended.has_value());
  }
  v1::SyncNodeRequest request;
  request.set_node_id("server-1");
  request.set_incarnation(node.incarnation());
  request.set_generation_seen(1);
  v1::SyncNodeResponse response;
  grpc::ClientContext context;  // This call is cut, so the node dies 500 ms later.
  SetDeadline(context, absl::Milliseconds(100));
  CHECK_FALSE(loopback.stub->SyncNode(&context, request, &response).ok());
  first_of({second});
  CHECK_STATUS(*second->ended, absl::StatusCode::kAborted, "the node's incarnation is over");
}

TEST_CASE("Scheduler service: a node that holds nothing is drained at once", "[scheduler]") {
  Loopback loopback;
  const v1::RegisterResponse server = loopback.Join(v1::SERVER, "server-1");
  CHECK(server.read_lease_ms() == 500);
  v1::DrainNodeRequest drain;
  drain.set_node_id("server-1");
  drain.set_wait_limit_ms(60'000);
  v1::DrainNodeResponse drained;
  REQUIRE_OK(loopback.Ask(&v1::Scheduler::Stub::DrainNode, drain, &drained));
  CHECK(drained.safe_to_stop());
  REQUIRE_OK_AND_ASSIGN(const v1::SyncNodeResponse answer, loopback.Sync(server, 0));
  CHECK(answer.may_stop());
  v1::ListNodesResponse nodes;
  REQUIRE_OK(loopback.Ask(&v1::Scheduler::Stub::ListNodes, v1::ListNodesRequest(), &nodes));
  CHECK(nodes.nodes(0).draining());
  drain.set_node_id("nobody");
  CHECK_STATUS(loopback.Ask(&v1::Scheduler::Stub::DrainNode, drain, &drained),
               absl::StatusCode::kNotFound, "no node \"nobody\"");
  drain.set_wait_limit_ms(-1);
  CHECK_STATUS(loopback.Ask(&v1::Scheduler::Stub::DrainNode, drain, &drained),
               absl::StatusCode::kInvalidArgument, "wait_limit_ms: -1");
}

TEST_CASE("Scheduler service: stopping answers held calls and refuses later ones", "[scheduler]") {
  Loopback loopback;
  const v1::RegisterResponse server = loopback.Join(v1::SERVER, "server-1");
  absl::StatusOr<v1::SyncNodeResponse> answer = absl::UnknownError("no answer");
  std::thread held([&] { answer = loopback.Sync(server, 1); });
  loopback.service->Stop();
  held.join();
  CHECK_STATUS(answer, absl::StatusCode::kUnavailable, "shutting down");
  CHECK_STATUS(loopback.Sync(server, 1), absl::StatusCode::kUnavailable, "shutting down");
}

}  // namespace
}  // namespace capstan::scheduler::scheduler_service_test
