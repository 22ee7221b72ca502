// CallSink: passes the tables' answers and records on during one operation of a job: to the calls
// that wait for them, to replicas and the log.
//
// Lives on the stack of one operation, under the job's mutex; notes which shards the operation
// touched and which pulls need a barrier, for CommitPipeline::SettleLocked.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SERVER_ENGINE_JOB_CALL_SINK_H_
#define CAPSTAN_SERVER_ENGINE_JOB_CALL_SINK_H_

#include <optional>
#include <utility>
#include <vector>

#include "common/time/instant.h"
#include "common/types/ids.h"
#include "server/core/messages/messages.h"
#include "server/engine/job/job_state.h"
#include "server/engine/shard_link.h"
#include "server/engine/waiting_calls.h"
#include "server/store/gradient.h"
#include "server/store/shard_store.h"
#include "server/store/tables/table_shard.h"

namespace capstan::server {

class CallSink final : public ReplySink {
 public:
  using CallId = WaitingCalls::CallId;

  CallSink(JobState* state, EndedCalls* ended) : state_(state), ended_(ended) {}

  // The call of the pushes being handled, which is held until they are safe.
  void SetPushCall(CallId call) { push_call_ = call; }
  void SetPushResult(v1::ShardPushResult* result) { push_ = result; }
  // A call has read the shard: it is held until that version is safe to show. REQUIRES: it has not
  // ended.
  void HoldRead(const ShardKey& key, CallId call, Version version);
  // The call is held until that version is committed, and so cannot be lost any more.
  void HoldVersion(const ShardKey& key, CallId call, Version version);

  void OnPush(const ShardKey& key, const ReplyPush& reply) override;
  absl::Status OnPull(const ShardKey& key, const ReplyPull& reply,
                      const ShardStore& store) override;
  void OnRecord(const ShardKey& key, const MakeRecord& made, const Gradient& gradient) override;

  // Shards that made records, in order; may repeat.
  const std::vector<ShardKey>& touched() const { return touched_; }
  // Reads whose answer needs a barrier. Each of these calls was opened once more, so it must be
  // sealed once more (WaitingCalls).
  std::vector<std::pair<ShardKey, CallId>> TakeBarriers() { return std::exchange(barriers_, {}); }
  void Touch(const ShardKey& key) { touched_.push_back(key); }

 private:
  bool NeedsBarrier(const ShardLink& link);

  JobState* const state_;
  EndedCalls* const ended_;
  v1::ShardPushResult* push_ = nullptr;
  CallId push_call_;
  std::optional<Instant> now_;  // Read once an operation, and only where a lease matters.
  std::vector<ShardKey> touched_;
  std::vector<std::pair<ShardKey, CallId>> barriers_;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_ENGINE_JOB_CALL_SINK_H_
