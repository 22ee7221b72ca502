// Calls of several connections at the same time: each counts once, and each is answered once.
//
// Interleavings are the machine's, results are not: gradients are whole numbers, whose sums are
// exact in any order. ThreadSanitizer reports what is not ordered (tests/sanitizers).
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/testing/status_matchers.h"
#include "common/time/clock.h"
#include "server/engine/job/held_job.h"
#include "server/engine/testing/job_fixture.h"
#include "server/replication/replica_checks.h"

namespace capstan::server::concurrent_calls_test {
namespace {

constexpr int32_t kBuckets = 4;
constexpr int kThreads = 4;
constexpr int kPushes = 50;  // Pushes of each thread.

const std::vector<uint64_t>& Keys() {
  static const auto* const keys = new std::vector<uint64_t>([] {
    std::vector<uint64_t> all;
    for (uint64_t key = 1; key <= 40; ++key) all.push_back(key);
    return all;
  }());
  return *keys;
}

Membership MembersOf(int count) {
  Membership membership{.generation = Generation(1)};
  for (int32_t rank = 0; rank < count; ++rank) {
    membership.members.push_back({.rank = Rank(rank), .incarnation = Incarnation(1)});
  }
  return membership;
}

// Calls work(0) ... work(kThreads - 1), each in a thread of its own.
void OnThreads(const std::function<void(int32_t)>& work) {
  std::vector<std::thread> threads;
  for (int32_t i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
}

absl::Status PushAndWait(HeldJob& job, const v1::PushRequest& push) {
  v1::PushResponse response;
  absl::Status result;
  absl::Notification ended;
  job.calls().Push(Detach(push), &response, [&](const absl::Status& status) {
    result = status;
    ended.Notify();
  });
  ended.WaitForNotification();
  return result;
}

struct Pulled {
  absl::Status status;
  PullAnswer answer;
};

Pulled PullAndWait(HeldJob& job, const v1::PullRequest& request) {
  Pulled pulled;
  absl::Notification ended;
  job.calls().Pull(request, &pulled.answer, [&](const absl::Status& status) {
    pulled.status = status;
    ended.Notify();
  });
  ended.WaitForNotification();
  return pulled;
}

// A rank's pushes of both tables; the first error.
absl::Status PushAll(HeldJob& job, int32_t rank) {
  for (uint64_t sequence = 1; sequence <= kPushes; ++sequence) {
    absl::Status pushed =
        PushAndWait(job, PushOf(rank, static_cast<int64_t>(sequence), -1, 1.0f, sequence));
    pushed.Update(PushAndWait(job, RowPushOf(rank, kBuckets, Keys(), 1.0f, sequence)));
    if (!pushed.ok()) return pushed;
  }
  return absl::OkStatus();
}

std::vector<float> RowsIn(PullAnswer answer) {
  const v1::PullResponse response = Attach(std::move(answer));
  std::vector<float> rows;
  for (const v1::ShardValues& shard : response.shards()) {
    const std::vector<float> values = [&] {
      std::vector<float> copy(shard.values().size() / sizeof(float));
      std::memcpy(copy.data(), shard.values().data(), shard.values().size());
      return copy;
    }();
    rows.insert(rows.end(), values.begin(), values.end());
  }
  return rows;
}

void CheckThatAllCounted(HeldJob& job) {
  const float expected = -static_cast<float>(kThreads * kPushes);
  CHECK(NumberIn(PullAndWait(job, SnapshotOf()).answer) == expected);
  const std::vector<float> rows = RowsIn(PullAndWait(job, RowPullOf(0, kBuckets, Keys())).answer);
  REQUIRE(rows.size() == Keys().size() * kTestDim);
  for (const float value : rows) CHECK(value == expected);
}

TEST_CASE("Concurrent calls: each push counts once, whatever is asked of the job meanwhile",
          "[server]") {
  const auto job =
      MakeTestJob({.consistency = {.mode = ConsistencyMode::kAsp}, .buckets = kBuckets});
  job->assignment().SetMembership(MembersOf(kThreads));
  std::vector<absl::Status> results(kThreads);
  std::atomic<bool> over = false;
  int64_t kept = 0;
  std::thread others([&] {
    for (uint64_t i = 1; !over; ++i) {
      v1::CheckpointOrder order;
      order.set_checkpoint_id(i);
      order.add_readers(1);
      if (job->snapshot_calls().Keep(order).ok()) ++kept;
      v1::CloseSnapshotRequest close;
      close.set_snapshot_id(i);
      close.set_reader(1);
      job->snapshot_calls().Close(close);
      job->assignment().SetMembership(MembersOf(kThreads));
      job->assignment().SetReadLease(Instant() + absl::Seconds(static_cast<double>(i)));
      job->Tick(Instant());
      if (!job->captures().Capture({}).ok() || job->Describe().size() != 2) return;
      std::this_thread::yield();
    }
  });
  OnThreads([&](int32_t rank) { results[static_cast<size_t>(rank)] = PushAll(*job, rank); });
  over = true;
  others.join();
  for (const absl::Status& result : results) REQUIRE_OK(result);
  CHECK(kept > 0);
  CheckThatAllCounted(*job);
}

TEST_CASE("Concurrent calls: a pull that waits is answered by whoever completes its iteration",
          "[server][bsp]") {
  const auto job = MakeTestJob(
      {.consistency = {.mode = ConsistencyMode::kBsp, .slots = kThreads}, .buckets = 0});
  job->assignment().SetMembership(MembersOf(kThreads));
  std::vector<std::vector<PullAnswer>> answers(kThreads);
  std::vector<absl::Status> results(kThreads);
  OnThreads([&](int32_t rank) {
    const auto mine = static_cast<size_t>(rank);
    for (int64_t iteration = 0; iteration < kPushes; ++iteration) {
      results[mine].Update(PushAndWait(*job, PushOf(rank, iteration, rank, 1.0f)));
      Pulled pulled = PullAndWait(*job, PullOf(rank, iteration + 1, 60'000));
      results[mine].Update(pulled.status);
      answers[mine].push_back(std::move(pulled.answer));
    }
  });
  for (const absl::Status& result : results) REQUIRE_OK(result);
  for (std::vector<PullAnswer>& of_rank : answers) {
    float before = 0;
    for (PullAnswer& answer : of_rank) {
      const float now = NumberIn(std::move(answer));
      CHECK(now < before);
      before = now;
    }
    CHECK(before == NumberIn(PullAndWait(*job, SnapshotOf()).answer));
  }
}

TEST_CASE("Concurrent calls: a pull that is cancelled while it is answered ends once", "[server]") {
  const auto job = MakeTestJob(ConsistencyRule{.mode = ConsistencyMode::kBsp, .slots = 1});
  job->assignment().SetMembership(MembersOf(2));
  for (int64_t iteration = 0; iteration < 200; ++iteration) {
    PullAnswer answer;
    std::atomic<int> ends = 0;
    absl::Status status;
    absl::Notification ended;
    const auto waits = job->calls().Pull(PullOf(1, iteration + 1, 60'000), &answer,
                                         [&](const absl::Status& result) {
                                           if (++ends > 1) return;
                                           status = result;
                                           ended.Notify();
                                         });
    REQUIRE(waits.has_value());
    std::thread cancels([&] { job->calls().Cancel(*waits); });
    const absl::Status pushed = PushAndWait(*job, PushOf(0, iteration, 0, 1.0f));
    cancels.join();
    ended.WaitForNotification();
    REQUIRE_OK(pushed);
    CHECK(ends == 1);
    if (status.ok()) {
      NumberIn(std::move(answer));
    } else {
      CHECK(absl::IsCancelled(status));
    }
  }
}

// Carries messages to the replica on a thread of its own.
class Post final : public ReplicaTransport {
 public:
  Post() : thread_([this] { Carry(); }) {}
  ~Post() override { Stop(); }

  void Send(const v1::ServerAddress&, ReplicaRequest request, Moved, Done done) override {
    Add([this, request = std::move(request), done = std::move(done)] {
      v1::ReplicateRequest message = *request.message;
      while (request.rows != nullptr) {
        const auto piece = request.rows->Next();
        if (!piece.ok() || !piece->has_value()) break;
        *message.mutable_install()->add_pieces() = **piece;
      }
      auto response = std::make_shared<v1::ReplicateResponse>();
      replica->replica_calls().Replicate(
          message, response.get(),
          [response, done](const absl::Status& status) { done(status, *response); });
    });
  }
  void SendTogether(const v1::ServerAddress&, std::vector<ReplicaRequest> requests,
                    SomeDone done) override {
    Add([this, requests = std::move(requests), done = std::move(done)] {
      v1::ReplicateBatch batch;
      for (const ReplicaRequest& each : requests) *batch.add_messages() = *each.message;
      auto answer = std::make_shared<v1::ReplicateBatchAnswer>();
      replica->replica_calls().ReplicateBatch(
          batch, answer.get(), [answer, done, count = requests.size()](const absl::Status& status) {
            done(OutcomesOf(count, status, *answer));
          });
    });
  }
  void Stop() {
    if (!thread_.joinable()) return;
    Add(nullptr);
    thread_.join();
  }

  std::shared_ptr<HeldJob> replica;

 private:
  void Add(std::function<void()> letter) {
    absl::MutexLock lock(&mutex_);
    mail_.push_back(std::move(letter));
  }
  void Carry() {
    while (true) {
      std::function<void()> letter;
      {
        absl::MutexLock lock(&mutex_);
        mutex_.Await(absl::Condition(
            +[](std::deque<std::function<void()>>* mail) { return !mail->empty(); }, &mail_));
        letter = std::move(mail_.front());
        mail_.pop_front();
      }
      if (letter == nullptr) return;
      letter();
    }
  }

  absl::Mutex mutex_;
  std::deque<std::function<void()>> mail_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

TEST_CASE("Concurrent calls: a replica has every push that was answered", "[server][replication]") {
  Post post;
  TestJobOptions options{.consistency = {.mode = ConsistencyMode::kAsp}, .buckets = kBuckets};
  options.safe_replies = true;
  options.transport = &post;
  const auto primary = MakeEmptyTestJob(options);
  options.node = "server-2";
  post.replica = MakeEmptyTestJob(options);
  v1::RoutingTable routing = TestRouting(1);
  AddBuckets(&routing, kBuckets);
  AddReplica(&routing, "server-2", /*in_sync=*/true);
  TakeRouting(*post.replica, routing);
  TakeRouting(*primary, routing);
  for (HeldJob* job : {primary.get(), post.replica.get()})
    job->assignment().SetMembership(MembersOf(kThreads));
  primary->assignment().SetReadLease(Instant() + absl::Hours(1));

  std::vector<absl::Status> results(kThreads);
  OnThreads([&](int32_t rank) { results[static_cast<size_t>(rank)] = PushAll(*primary, rank); });
  post.Stop();
  for (const absl::Status& result : results) REQUIRE_OK(result);
  const std::vector<HeldCopy> ours = primary->Copies(), theirs = post.replica->Copies();
  REQUIRE(ours.size() == 2 + kBuckets);
  REQUIRE(theirs.size() == ours.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    CHECK(ours[i].snapshot.position() == theirs[i].snapshot.position());
    CHECK(ours[i].snapshot.values() == theirs[i].snapshot.values());
  }
}

}  // namespace
}  // namespace capstan::server::concurrent_calls_test
