#include "server/service/held_job.h"

#include <algorithm>
#include <cstring>

#include "absl/container/btree_set.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "server/service/codec.h"

namespace capstan::server {
namespace {

template <typename ShardMessage>
ShardKey KeyOf(const ShardMessage& shard) {
  return {TableId(shard.table()), ShardId(shard.shard())};
}

std::string NameOf(const ShardKey& key) {
  return absl::StrCat("table ", key.table.value(), " shard ", key.shard.value());
}

// Checks the list of a message: not empty, not too long, no shard twice.
template <typename ShardMessages>
absl::Status CheckShardList(const ShardMessages& shards) {
  if (shards.empty()) return absl::InvalidArgumentError("no shards: expected at least 1");
  if (shards.size() > HeldJob::kShardsPerMessageMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        shards.size(), " shards in one message: expected at most ", HeldJob::kShardsPerMessageMax));
  }
  absl::btree_set<ShardKey> seen;
  for (const auto& shard : shards) {
    if (!seen.insert(KeyOf(shard)).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(NameOf(KeyOf(shard)), " is twice in one message: expected once"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckBytes(const ShardKey& key, int64_t elements, size_t bytes) {
  const int64_t expected = elements * static_cast<int64_t>(sizeof(float));
  if (static_cast<int64_t>(bytes) == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(NameOf(key), ": expected ", expected, " bytes = ",
                                                 elements, " elements of fp32, got ", bytes));
}

// The floats of a message; copied to `copy` in the rare case that they do not lie aligned.
absl::Span<const float> FloatsOf(const std::string& bytes, std::vector<float>* copy) {
  const size_t count = bytes.size() / sizeof(float);
  if (reinterpret_cast<uintptr_t>(bytes.data()) % alignof(float) == 0) {
    return {reinterpret_cast<const float*>(bytes.data()), count};
  }
  copy->resize(count);
  std::memcpy(copy->data(), bytes.data(), bytes.size());
  return *copy;
}

}  // namespace

// Writes answers into the calls that wait for them.
class HeldJob::Sink final : public ReplySink {
 public:
  Sink(HeldJob* job, Ended* ended) : job_(job), ended_(ended) {}

  void SetPush(v1::ShardPushResult* push) { push_ = push; }

  void OnPush(const ShardKey&, const ReplyPush& reply) override { EncodePushReply(reply, push_); }

  void OnPull(const ShardKey& key, const ReplyPull& reply, absl::Span<const float> values) override
      ABSL_NO_THREAD_SAFETY_ANALYSIS {  // Called by the tables, under the job's mutex.
    const auto part = job_->parts_.find(reply.token);
    Call& call = job_->calls_.at(part->second.call);
    EncodePullReply(reply, values, call.response->mutable_shards(part->second.index));
    if (reply.outcome == PullOutcome::kNotReady) {
      EncodeCulprits(key, reply.waiting_for, call.response->add_waiting_for());
    }
    const CallId id = part->second.call;
    job_->parts_.erase(part);
    if (--call.shards_left == 0) {
      ended_->emplace_back(std::move(call.done), absl::OkStatus());
      job_->calls_.erase(id);
    }
  }

 private:
  HeldJob* const job_;
  Ended* const ended_;
  v1::ShardPushResult* push_ = nullptr;
};

HeldJob::HeldJob(JobId job, Generation routing, std::unique_ptr<JobTables> tables)
    : job_(std::move(job)), routing_generation_(routing), tables_(std::move(tables)) {}

absl::Status HeldJob::Push(const v1::PushRequest& request, v1::PushResponse* response) {
  Ended ended;
  absl::Status status;
  {
    absl::MutexLock lock(&mutex_);
    status = CheckPushLocked(request);
    if (status.ok()) status = PushLocked(request, response, &ended);
  }
  Tell(ended);
  return Annotate(status, absl::StrCat("push to ", job_));
}

std::optional<HeldJob::CallId> HeldJob::Pull(const v1::PullRequest& request, Instant now,
                                             v1::PullResponse* response, Done done) {
  Ended ended;
  std::optional<CallId> waits;
  {
    absl::MutexLock lock(&mutex_);
    if (absl::Status status = CheckPullLocked(request); !status.ok()) {
      ended.emplace_back(std::move(done), Annotate(status, absl::StrCat("pull from ", job_)));
    } else {
      waits = PullLocked(request, now, response, std::move(done), &ended);
    }
  }
  Tell(ended);
  return waits;
}

std::optional<HeldJob::CallId> HeldJob::PushPull(const v1::PushPullRequest& request, Instant now,
                                                 v1::PushPullResponse* response, Done done) {
  Ended ended;
  std::optional<CallId> waits;
  {
    absl::MutexLock lock(&mutex_);
    absl::Status status = CheckPushLocked(request.push());
    if (status.ok()) status = CheckPullLocked(request.pull());
    if (status.ok()) status = PushLocked(request.push(), response->mutable_push(), &ended);
    if (!status.ok()) {
      ended.emplace_back(std::move(done), Annotate(status, absl::StrCat("push-pull at ", job_)));
    } else {
      waits = PullLocked(request.pull(), now, response->mutable_pull(), std::move(done), &ended);
    }
  }
  Tell(ended);
  return waits;
}

void HeldJob::Cancel(CallId call) {
  Ended ended;
  {
    absl::MutexLock lock(&mutex_);
    EndLocked(call, absl::CancelledError("the caller is gone"), &ended);
  }
  Tell(ended);
}

void HeldJob::SetRouting(Generation generation) {
  absl::MutexLock lock(&mutex_);
  routing_generation_ = std::max(routing_generation_, generation);
}

void HeldJob::SetMembership(const Membership& membership) {
  Ended ended;
  {
    absl::MutexLock lock(&mutex_);
    Sink sink(this, &ended);
    membership_generation_ = std::max(membership_generation_, membership.generation);
    tables_->SetMembership(membership, sink);
  }
  Tell(ended);
}

void HeldJob::Tick(Instant now) {
  Ended ended;
  {
    absl::MutexLock lock(&mutex_);
    Sink sink(this, &ended);
    tables_->Tick(now, sink);
  }
  Tell(ended);
}

Instant HeldJob::NextDeadline() const {
  absl::MutexLock lock(&mutex_);
  return calls_.empty() ? Instant::InfiniteFuture() : tables_->NextDeadline();
}

void HeldJob::Close(const absl::Status& reason) {
  Ended ended;
  {
    absl::MutexLock lock(&mutex_);
    closed_ = reason;
    while (!calls_.empty()) EndLocked(calls_.begin()->first, reason, &ended);
  }
  Tell(ended);
}

Generation HeldJob::routing_generation() const {
  absl::MutexLock lock(&mutex_);
  return routing_generation_;
}

Generation HeldJob::membership_generation() const {
  absl::MutexLock lock(&mutex_);
  return membership_generation_;
}

absl::Status HeldJob::failure() const {
  absl::MutexLock lock(&mutex_);
  return tables_->failure();
}

std::vector<HeldShard> HeldJob::shards() const {
  absl::MutexLock lock(&mutex_);
  return tables_->shards();
}

std::vector<v1::HeldTable> HeldJob::Describe() const {
  absl::MutexLock lock(&mutex_);
  std::vector<v1::HeldTable> tables = tables_->Describe();
  for (v1::HeldTable& table : tables) table.set_job_id(job_);
  return tables;
}

void HeldJob::Tell(const Ended& ended) {
  for (const auto& [done, status] : ended) done(status);
}

absl::Status HeldJob::CheckCallerLocked(const v1::Caller& caller) const {
  CAPSTAN_RETURN_IF_ERROR(closed_);
  CAPSTAN_RETURN_IF_ERROR(CheckCaller(caller));
  const uint64_t held = routing_generation_.value();
  if (caller.routing_generation() < held) {
    return absl::FailedPreconditionError(
        absl::StrCat("routing generation ", caller.routing_generation(), ": expected ", held,
                     "; fetch the routing table and send again"));
  }
  if (caller.routing_generation() > held) {
    return absl::UnavailableError(absl::StrCat("routing generation ", caller.routing_generation(),
                                               ": this server has ", held,
                                               " and will take the newer one in soon; try again"));
  }
  return absl::OkStatus();
}

absl::Status HeldJob::CheckPushLocked(const v1::PushRequest& request) const {
  CAPSTAN_RETURN_IF_ERROR(CheckCallerLocked(request.caller()));
  if (request.caller().rank() == kReaderRank.value()) {
    return absl::InvalidArgumentError("rank -1: a reader that is no worker may not push");
  }
  CAPSTAN_RETURN_IF_ERROR(CheckShardList(request.shards()));
  for (const v1::ShardPush& shard : request.shards()) {
    const ShardKey key = KeyOf(shard);
    CAPSTAN_ASSIGN_OR_RETURN(const int64_t elements, tables_->ElementsOf(key));
    CAPSTAN_RETURN_IF_ERROR(CheckBytes(key, elements, shard.values().size()));
    const absl::StatusOr<PushHead> head = DecodePush(request, shard);
    if (!head.ok()) return Annotate(head.status(), NameOf(key));
    CAPSTAN_RETURN_IF_ERROR(tables_->CheckPush(key, *head));
  }
  return absl::OkStatus();
}

absl::Status HeldJob::CheckPullLocked(const v1::PullRequest& request) const {
  CAPSTAN_RETURN_IF_ERROR(CheckCallerLocked(request.caller()));
  CAPSTAN_RETURN_IF_ERROR(CheckShardList(request.shards()));
  if (request.wait_limit_ms() < 0 || request.wait_limit_ms() > kWaitLimitMsMax) {
    return absl::InvalidArgumentError(absl::StrCat("wait_limit_ms ", request.wait_limit_ms(),
                                                   ": expected 0 to ", kWaitLimitMsMax));
  }
  int64_t answer_bytes = 0;
  for (const v1::ShardPull& shard : request.shards()) {
    const ShardKey key = KeyOf(shard);
    CAPSTAN_ASSIGN_OR_RETURN(const int64_t elements, tables_->ElementsOf(key));
    answer_bytes += elements * static_cast<int64_t>(sizeof(float));
    const absl::StatusOr<PullHead> head = DecodePull(request, shard);
    if (!head.ok()) return Annotate(head.status(), NameOf(key));
    CAPSTAN_RETURN_IF_ERROR(tables_->CheckPull(key, *head));
  }
  if (answer_bytes > kAnswerBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("asks for ", answer_bytes, " bytes of values in one answer: expected at most ",
                     kAnswerBytesMax));
  }
  return absl::OkStatus();
}

absl::Status HeldJob::PushLocked(const v1::PushRequest& request, v1::PushResponse* response,
                                 Ended* ended) {
  Sink sink(this, ended);
  std::vector<float> copy;
  for (const v1::ShardPush& shard : request.shards()) {
    CAPSTAN_ASSIGN_OR_RETURN(const PushHead head, DecodePush(request, shard));
    sink.SetPush(response->add_shards());
    CAPSTAN_RETURN_IF_ERROR(
        tables_->Push(KeyOf(shard), head, FloatsOf(shard.values(), &copy), sink));
  }
  return absl::OkStatus();
}

std::optional<HeldJob::CallId> HeldJob::PullLocked(const v1::PullRequest& request, Instant now,
                                                   v1::PullResponse* response, Done done,
                                                   Ended* ended) {
  const CallId id = next_call_;
  ++next_call_;
  Call& call = calls_[id];
  call = {.response = response,
          .done = std::move(done),
          .shards_left = request.shards_size(),
          .parts = {}};
  std::vector<PullHead> heads;
  for (const v1::ShardPull& shard : request.shards()) {
    PullHead head = DecodePull(request, shard).value();  // Checked before.
    head.token = next_token_;
    ++next_token_;
    head.deadline = now + absl::Milliseconds(request.wait_limit_ms());
    parts_[head.token] = {.call = id, .index = static_cast<int>(heads.size())};
    call.parts.emplace_back(head.token, KeyOf(shard));
    response->add_shards();
    heads.push_back(head);
  }
  Sink sink(this, ended);
  for (int i = 0; i < request.shards_size(); ++i) {
    const absl::Status status = tables_->Pull(KeyOf(request.shards(i)), heads[i], now, sink);
    if (!status.ok()) {
      EndLocked(id, Annotate(status, absl::StrCat("pull from ", job_)), ended);
      return std::nullopt;
    }
  }
  if (!calls_.contains(id)) return std::nullopt;
  return id;
}

void HeldJob::EndLocked(CallId id, const absl::Status& status, Ended* ended) {
  const auto it = calls_.find(id);
  if (it == calls_.end()) return;
  for (const auto& [token, key] : it->second.parts) {
    if (parts_.erase(token) > 0) tables_->CancelPull(key, token);
  }
  ended->emplace_back(std::move(it->second.done), status);
  calls_.erase(it);
}

}  // namespace capstan::server
