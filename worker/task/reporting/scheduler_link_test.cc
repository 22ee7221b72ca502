#include "worker/task/reporting/scheduler_link.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "absl/synchronization/mutex.h"
#include "common/net/grpc/grpc_server.h"
#include "common/testing/status_matchers.h"

namespace capstan::worker::scheduler_link_test {
namespace {

class FakeScheduler final : public v1::Scheduler::Service {
 public:
  grpc::Status SyncTask(grpc::ServerContext*, const v1::SyncTaskRequest* request,
                        v1::SyncTaskResponse* response) override {
    absl::MutexLock lock(&mutex_);
    ++calls_;
    last_ = *request;
    if (fenced_) return {grpc::StatusCode::ABORTED, "incarnation 1 was replaced"};
    if (calls_ > away_after_ && calls_ <= back_after_) {
      return {grpc::StatusCode::UNAVAILABLE, "away"};
    }
    response->mutable_assignment()->set_generation(static_cast<uint64_t>(calls_));
    return grpc::Status::OK;
  }
  void AwaitCalls(int count) {
    absl::MutexLock lock(&mutex_);
    auto enough = [this, count]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return calls_ >= count; };
    mutex_.Await(absl::Condition(&enough));
  }
  int calls() {
    absl::MutexLock lock(&mutex_);
    return calls_;
  }
  void BeAway(int after, int until) {
    absl::MutexLock lock(&mutex_);
    away_after_ = after;
    back_after_ = until;
  }
  void Fence() {
    absl::MutexLock lock(&mutex_);
    fenced_ = true;
  }

 private:
  absl::Mutex mutex_;
  int calls_ = 0;
  int away_after_ = 0;  // Calls after this one, up to back_after_, are not answered.
  int back_after_ = 0;
  bool fenced_ = false;
  v1::SyncTaskRequest last_;
};

struct Fixture {
  explicit Fixture(absl::Duration interval, uint64_t routing_seen = 1) {
    auto started = GrpcServer::Start({.services = {&scheduler}});
    REQUIRE_OK(started);
    server = *std::move(started);
    link = std::make_unique<SchedulerLink>(
        SchedulerLink::Options{.scheduler = server->address(),
                               .pace = {.interval = interval, .retry_max = absl::Milliseconds(1)}},
        SchedulerLink::Callbacks{.report =
                                     [routing_seen] {
                                       v1::SyncTaskRequest request;
                                       request.set_routing_seen(routing_seen);
                                       return request;
                                     },
                                 .receive =
                                     [this](const v1::SyncTaskResponse& response) {
                                       absl::MutexLock lock(&mutex);
                                       newest = response.assignment().generation();
                                     },
                                 .fenced =
                                     [this](const absl::Status& status) {
                                       absl::MutexLock lock(&mutex);
                                       fence = std::string(status.message());
                                     }});
  }

  FakeScheduler scheduler;
  std::unique_ptr<GrpcServer> server;
  absl::Mutex mutex;
  uint64_t newest = 0;
  std::string fence;
  std::unique_ptr<SchedulerLink> link;
};

TEST_CASE("Link: it reports at once, again after the interval, and hands answers on",
          "[worker][task]") {
  Fixture f(absl::Milliseconds(1));
  f.link->Start();
  f.scheduler.AwaitCalls(3);
  f.link->Stop();
  absl::MutexLock lock(&f.mutex);
  CHECK(f.newest >= 2);
}

TEST_CASE("Link: a wake-up does not wait for the interval", "[worker][task]") {
  Fixture f(absl::Hours(1));
  f.link->Start();
  f.scheduler.AwaitCalls(1);
  f.link->Wake();
  f.scheduler.AwaitCalls(2);
  f.link->Stop();
  CHECK(f.scheduler.calls() == 2);
}

TEST_CASE("Link: told that it was replaced, it says so once and ends", "[worker][task]") {
  Fixture f(absl::Milliseconds(1));
  f.link->Start();
  f.scheduler.Fence();
  {
    absl::MutexLock lock(&f.mutex);
    auto fenced = [&f] { return !f.fence.empty(); };
    f.mutex.Await(absl::Condition(&fenced));
    CHECK_THAT(f.fence, Catch::Contains("replaced"));
  }
  f.link->Stop();
}

TEST_CASE("Link: it outlives a scheduler that is away for as many tries as a minute holds",
          "[worker][task]") {
  Fixture f(absl::Milliseconds(1));
  f.scheduler.BeAway(1, 101);  // A daemon tries once per second; this test, once per millisecond.
  f.link->Start();
  f.scheduler.AwaitCalls(103);
  f.link->Stop();
  absl::MutexLock lock(&f.mutex);
  CHECK(f.newest >= 102);
  CHECK(f.fence.empty());
}

TEST_CASE("Link: a task that needs a routing table does not wait for the interval",
          "[worker][task]") {
  Fixture f(absl::Hours(1), /*routing_seen=*/0);
  f.link->Start();
  f.scheduler.AwaitCalls(3);
  f.link->Stop();
  CHECK(f.scheduler.calls() >= 3);
}

TEST_CASE("Link: a last report can be sent after the thread has ended", "[worker][task]") {
  Fixture f(absl::Hours(1));
  f.link->Start();
  f.scheduler.AwaitCalls(1);
  f.link->Stop();
  REQUIRE_OK(f.link->ReportOnce({}));
  CHECK(f.scheduler.calls() == 2);
}

}  // namespace
}  // namespace capstan::worker::scheduler_link_test
