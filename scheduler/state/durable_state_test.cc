#include "scheduler/state/durable_state.h"

#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/net/grpc_types/grpc_status.h"
#include "common/testing/status_matchers.h"
#include "scheduler/core/testing/fake_cluster.h"
#include "scheduler/store/state_codec.h"
#include "scheduler/store/testing/memory_store.h"
#include "scheduler/testing/temporary_folder.h"

namespace capstan::scheduler::durable_state_test {
namespace {

// A call without a connection.
class FakeCall final : public grpc::ServerCallbackUnary {
 public:
  FakeCall() { BindReactor(&reactor_); }
  grpc::ServerUnaryReactor* reactor() override { return &reactor_; }
  bool answered() const { return answered_.HasBeenNotified(); }
  absl::Status Answer() const {
    answered_.WaitForNotification();
    return answer_;
  }

 private:
  struct Reactor final : grpc::ServerUnaryReactor {
    void OnDone() override {}
  };
  void Finish(grpc::Status status) override {
    answer_ = FromGrpcStatus(status);
    answered_.Notify();
  }
  void SendInitialMetadata() override {}
  void CallOnDone() override {}

  Reactor reactor_;
  absl::Status answer_;
  absl::Notification answered_;
};

// A store whose writes wait while it is shut.
class GatedStore final : public Store {
 public:
  absl::StatusOr<StoreRows> Load() override {
    absl::MutexLock lock(&mutex_);
    return rows_.Load();
  }
  absl::Status Write(absl::Span<const StoreWrite> writes) override {
    absl::MutexLock lock(&mutex_);
    is_writing_ = true;
    mutex_.Await(absl::Condition(&is_open_));
    return rows_.Write(writes);
  }
  void Shut() {
    absl::MutexLock lock(&mutex_);
    is_open_ = is_writing_ = false;
  }
  void AwaitWrite() {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&is_writing_));
  }
  void Open() {
    absl::MutexLock lock(&mutex_);
    is_open_ = true;
  }
  void FailNext() {
    absl::MutexLock lock(&mutex_);
    rows_.FailNext(absl::ResourceExhaustedError("the disk is full"));
  }

 private:
  absl::Mutex mutex_;
  MemoryStore rows_;
  bool is_open_ = true;
  bool is_writing_ = false;
};

// A state whose nodes do not die of silence.
struct Fixture {
  explicit Fixture(absl::Duration sync_interval = absl::Minutes(10)) {
    DurableState::Options options;
    options.core.lease = absl::Minutes(10);
    options.core.sync_interval = sync_interval;
    options.on_fatal = [this](const absl::Status& status) { fatal.push_back(status); };
    options.on_forgotten = [this](const JobId& job) { forgotten.push_back(job); };
    state = DurableState::Open(options, {}, &store, &clock).value();
    state->Start([this](const FileWork&) { ++file_works; });
  }
  ~Fixture() {
    store.Open();
    state->Stop();
  }
  // Registers server-1, the next incarnation of it if there is one, and answers `call`.
  Incarnation Register(FakeCall& call) {
    absl::MutexLock lock(&state->mutex());
    NodeInfo info{.name = "server-1", .role = Role::kServer, .address = "h:1"};
    info.identity = "server-1";
    Actions actions;
    const Registration node = state->core().Register(info, state->Now(), actions).value();
    state->Commit(std::move(actions), {{call.reactor()}});
    return node.incarnation;
  }
  // A sync of a server that has seen its desired state.
  Ticket Sync(FakeCall& call, const NodeId& node, Incarnation incarnation) {
    absl::MutexLock lock(&state->mutex());
    const Ticket ticket = state->NextTicket();
    NodeReport report{.node = node, .incarnation = incarnation};
    report.generation_seen = Generation(1);
    state->Hold(ticket, {call.reactor(), &response}, [&](SchedulerCore& core, Actions& actions) {
      return core.SyncNode(ticket, report, state->Now(), actions);
    });
    return ticket;
  }
  void Commit(FakeCall& call) {
    absl::MutexLock lock(&state->mutex());
    state->Commit({}, {{call.reactor()}});
  }
  bool Holds(Ticket ticket) {
    absl::MutexLock lock(&state->mutex());
    return state->Holds(ticket);
  }
  absl::Status Running() {
    absl::MutexLock lock(&state->mutex());
    return state->Running();
  }

  SteadyClock clock;
  GatedStore store;
  v1::SyncNodeResponse response;
  std::atomic<int> file_works = 0;
  std::vector<absl::Status> fatal;  // Read after an answer that follows it, as is `forgotten`.
  std::vector<JobId> forgotten;
  std::unique_ptr<DurableState> state;
};

TEST_CASE("Durable state: no answer comes before its step and all earlier steps are durable",
          "[scheduler]") {
  Fixture fixture;
  fixture.store.Shut();
  FakeCall registration;
  FakeCall question;
  fixture.Register(registration);
  fixture.Commit(question);  // It changes nothing, but its answer may depend on the registration.
  fixture.store.AwaitWrite();
  CHECK_FALSE(registration.answered());
  CHECK_FALSE(question.answered());
  fixture.store.Open();
  REQUIRE_OK(question.Answer());
  CHECK(registration.answered());
  CHECK_FALSE(fixture.store.Load()->empty());
}

TEST_CASE("Durable state: a call is held until the core answers it", "[scheduler]") {
  Fixture fixture(/*sync_interval=*/absl::Milliseconds(20));
  FakeCall registration;
  FakeCall sync;
  const Incarnation server = fixture.Register(registration);
  const Ticket ticket = fixture.Sync(sync, "server-1", server);
  REQUIRE_OK(sync.Answer());  // The timer answers when the sync interval is over.
  CHECK(fixture.response.generation() == 1);
  CHECK_FALSE(fixture.Holds(ticket));
}

TEST_CASE("Durable state: a call that the core does not accept gets the core's error",
          "[scheduler]") {
  Fixture fixture;
  FakeCall sync;
  const Ticket ticket = fixture.Sync(sync, "server-9", Incarnation(1));
  CHECK_STATUS(sync.Answer(), absl::StatusCode::kNotFound, "server-9");
  CHECK_FALSE(fixture.Holds(ticket));
}

TEST_CASE("Durable state: held and later calls are refused once calls end", "[scheduler]") {
  Fixture fixture;
  FakeCall registration;
  FakeCall sync;
  FakeCall connection;
  FakeCall later;
  const Incarnation server = fixture.Register(registration);
  CHECK(fixture.Holds(fixture.Sync(sync, "server-1", server)));
  {
    absl::MutexLock lock(&fixture.state->mutex());
    fixture.state->connections().Add("server-1", {Ticket(99), server, connection.reactor()});
  }
  fixture.state->EndCalls();
  CHECK_STATUS(sync.Answer(), absl::StatusCode::kUnavailable, "shutting down");
  CHECK_STATUS(connection.Answer(), absl::StatusCode::kUnavailable, "shutting down");
  CHECK(fixture.Running().code() == absl::StatusCode::kUnavailable);
  fixture.Sync(later, "server-1", server);
  CHECK_STATUS(later.Answer(), absl::StatusCode::kUnavailable, "shutting down");
  fixture.state->EndCalls();
  REQUIRE_OK(registration.Answer());  // A step that was taken before is finished.
}

TEST_CASE("Durable state: a node's connection ends with its incarnation", "[scheduler]") {
  Fixture fixture;
  FakeCall first;
  FakeCall connection;
  FakeCall second;
  const Incarnation server = fixture.Register(first);
  {
    absl::MutexLock lock(&fixture.state->mutex());
    fixture.state->connections().Add("server-1", {Ticket(99), server, connection.reactor()});
  }
  fixture.Register(second);
  CHECK_STATUS(connection.Answer(), absl::StatusCode::kAborted, "the node's incarnation is over");
}

TEST_CASE("Durable state: if a write fails, its and all later calls are refused", "[scheduler]") {
  Fixture fixture;
  FakeCall started;
  FakeCall failed;
  FakeCall later;
  fixture.Commit(started);
  REQUIRE_OK(started.Answer());
  const int file_works = fixture.file_works;
  fixture.store.FailNext();
  fixture.Register(failed);
  CHECK_STATUS(failed.Answer(), absl::StatusCode::kUnavailable, "the disk is full");
  fixture.Commit(later);
  CHECK_STATUS(later.Answer(), absl::StatusCode::kUnavailable, "the disk is full");
  CHECK(fixture.Running().code() == absl::StatusCode::kUnavailable);
  REQUIRE(fixture.fatal.size() == 1);
  CHECK(fixture.fatal[0].code() == absl::StatusCode::kResourceExhausted);
  CHECK(fixture.file_works == file_works);
}

TEST_CASE("Durable state: a job is reported as forgotten only once that is durable",
          "[scheduler]") {
  Fixture fixture;
  const testing::TemporaryFolder folder;
  auto admitted = std::make_shared<AdmittedJob>();
  admitted->plan = testing::Plan("job-1", 1);
  admitted->output_directory = folder.path();
  const auto take_step = [&](const auto& step, FakeCall& call) {
    absl::MutexLock lock(&fixture.state->mutex());
    fixture.state->jobs().emplace("job-1", admitted);
    Actions actions;
    REQUIRE_OK(step(fixture.state->core(), fixture.state->Now(), actions));
    fixture.state->Commit(std::move(actions), {{call.reactor()}});
  };
  FakeCall stopped;
  FakeCall deleted;
  take_step(
      [&](SchedulerCore& core, Instant now, Actions& actions) {
        REQUIRE_OK(core.SubmitJob(admitted->plan, now, actions));
        return core.StopJob("job-1", now, actions).status();
      },
      stopped);
  REQUIRE_OK(stopped.Answer());
  const bool fails = GENERATE(false, true);
  if (fails) fixture.store.FailNext();
  take_step([](SchedulerCore& core, Instant now,
               Actions& actions) { return core.DeleteJob("job-1", now, actions); },
            deleted);
  CHECK(deleted.Answer().ok() == !fails);
  CHECK(fixture.forgotten == (fails ? std::vector<JobId>{} : std::vector<JobId>{"job-1"}));
  absl::MutexLock lock(&fixture.state->mutex());
  CHECK(fixture.state->jobs().empty());
}

TEST_CASE("Durable state: a store that has a job without its specification is refused",
          "[scheduler]") {
  SchedulerCore core({});
  const SteadyClock clock;
  Actions actions;
  REQUIRE_OK(core.SubmitJob(testing::Plan("job-1", 1), clock.Now(), actions));
  StoreRows rows;
  for (const StoreWrite& write : EncodeChanges(core, actions.changes, {clock.Now(), absl::Now()})) {
    rows[write.key] = write.value.value();
  }
  MemoryStore store;
  CHECK_STATUS(DurableState::Open({}, rows, &store, &clock).status(), absl::StatusCode::kDataLoss,
               "the store has no specification of job-1");
}

}  // namespace
}  // namespace capstan::scheduler::durable_state_test
