// HeldJob: one job's tables on this server behind a mutex; checks messages, carries them out, and
// keeps the pulls that wait. Knows protobuf, not gRPC.
//
// A message is checked as a whole before any of it touches state. A waiting pull holds no thread:
// it is an entry here until the last of its shards is answered, its deadline passes, it is
// cancelled, or the job is closed. Callbacks run outside the mutex.
//
//   Pull --> checked --> every shard answered ---------------------------------> done(OK)
//               |  \                                ^
//               |   '--> WAITING --push, members, Tick(deadline)---'
//               |          |---Cancel---> done(kCancelled)
//               |          '---Close----> done(the reason)
//               '--> done(what is wrong)
//
// Thread safety: thread-safe.
#ifndef CAPSTAN_SERVER_SERVICE_HELD_JOB_H_
#define CAPSTAN_SERVER_SERVICE_HELD_JOB_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "proto/parameter_server.pb.h"
#include "server/core/membership.h"
#include "server/table_store/job_tables.h"

namespace capstan::server {

class HeldJob {
 public:
  // Entries of one message, and bytes of values in one answer.
  static constexpr int kShardsPerMessageMax = 16'384;
  static constexpr int64_t kAnswerBytesMax = 60 << 20;

  // Called exactly once per pull, from any thread, under no lock of this class.
  using Done = std::function<void(const absl::Status&)>;
  using CallId = StrongInt<struct CallIdTag, uint64_t>;

  HeldJob(JobId job, Generation routing, std::unique_ptr<JobTables> tables);

  // Errors: kInvalidArgument    a field that cannot be; names shard, value and what was expected.
  //         kNotFound           a shard that is not held here.
  //         kFailedPrecondition the caller's routing table is older than this server's.
  //         kUnavailable        it is newer: this server has not taken it in yet.
  //         kAborted            the caller's life is fenced off.
  //         kResourceExhausted  too many pushes beyond the low-water mark, or no memory.
  absl::Status Push(const v1::PushRequest& request, v1::PushResponse* response);

  // Fills `response` and calls `done`, now or later; the request is not needed after the call.
  // Returns the id to cancel it by if it waits. Errors (to `done`): as Push.
  std::optional<CallId> Pull(const v1::PullRequest& request, Instant now,
                             v1::PullResponse* response, Done done);

  // A push, then a pull; nothing is pushed if the pull would be refused.
  std::optional<CallId> PushPull(const v1::PushPullRequest& request, Instant now,
                                 v1::PushPullResponse* response, Done done);

  void Cancel(CallId call);  // Ends the call with kCancelled; unknown ids are ignored.

  void SetRouting(Generation generation);  // Ignored if not newer.
  void SetMembership(const Membership& membership);
  void Tick(Instant now);
  Instant NextDeadline() const;
  void Close(const absl::Status& reason);  // Ends every waiting call, and refuses later ones.

  const JobId& job() const { return job_; }
  Generation routing_generation() const;
  Generation membership_generation() const;
  absl::Status failure() const;  // As JobTables.
  std::vector<HeldShard> shards() const;
  std::vector<v1::HeldTable> Describe() const;

 private:
  class Sink;
  struct Call {
    v1::PullResponse* response = nullptr;
    Done done;
    int shards_left = 0;
    std::vector<std::pair<PullToken, ShardKey>> parts;
  };
  struct Part {  // Of a call: where a shard's answer goes.
    CallId call;
    int index = 0;
  };
  // Calls that have ended: to be told once the mutex is released.
  using Ended = std::vector<std::pair<Done, absl::Status>>;
  static void Tell(const Ended& ended);

  absl::Status CheckCallerLocked(const v1::Caller& caller) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckPushLocked(const v1::PushRequest& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckPullLocked(const v1::PullRequest& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status PushLocked(const v1::PushRequest& request, v1::PushResponse* response, Ended* ended)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<CallId> PullLocked(const v1::PullRequest& request, Instant now,
                                   v1::PullResponse* response, Done done, Ended* ended)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndLocked(CallId id, const absl::Status& status, Ended* ended)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const JobId job_;
  mutable absl::Mutex mutex_;
  Generation routing_generation_ ABSL_GUARDED_BY(mutex_);
  Generation membership_generation_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<JobTables> tables_ ABSL_GUARDED_BY(mutex_);
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);  // Not OK: why.
  absl::btree_map<CallId, Call> calls_ ABSL_GUARDED_BY(mutex_);
  absl::btree_map<PullToken, Part> parts_ ABSL_GUARDED_BY(mutex_);
  PullToken next_token_ ABSL_GUARDED_BY(mutex_){1};
  CallId next_call_ ABSL_GUARDED_BY(mutex_){1};
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_SERVICE_HELD_JOB_H_
