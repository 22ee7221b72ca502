#include "server/engine/job/job_calls.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "server/engine/codec.h"
#include "server/engine/message_checks.h"
#include "server/engine/shard_engine.h"
#include "server/store/tables/table_shard.h"

namespace capstan::server {

std::optional<JobCalls::CallId> JobCalls::Push(const PushMessage& push, v1::PushResponse* response,
                                               Done done) {
  JobEffects effects;
  std::optional<CallId> waits;
  {
    absl::ReaderMutexLock lock(&state_->mutex);
    const CallId call = state_->calls.Begin(std::move(done));
    CallSink sink(state_, &effects.ended);
    sink.SetPushCall(call);
    const auto gradients = checks_.CheckPushLocked(push);
    absl::Status status = gradients.status();
    if (status.ok() && !gradients->has_value()) response->set_unknown_key_list(true);
    if (status.ok() && gradients->has_value()) {
      status = PushLocked(push.head, **gradients, response, sink);
    }
    status = Annotate(status, absl::StrCat("push to ", state_->options.job));
    waits = commits_->FinishLocked(call, status, sink, &effects);
  }
  commits_->Perform(&effects);
  return waits;
}

std::optional<JobCalls::CallId> JobCalls::Pull(const v1::PullRequest& request, PullAnswer* answer,
                                               Done done) {
  std::optional<Ahead> ahead = FetchRows(request);
  JobEffects effects;
  std::optional<CallId> waits;
  {
    absl::ReaderMutexLock lock(&state_->mutex);
    const CallId call = state_->calls.Begin(std::move(done));
    CallSink sink(state_, &effects.ended);
    const auto keys = KeysOfPullLocked(request, std::move(ahead));
    absl::Status status = keys.status();
    if (status.ok() && !keys->has_value()) answer->head.set_unknown_key_list(true);
    if (status.ok() && keys->has_value()) {
      status = PullLocked(request, **keys, call, answer, sink, &effects);
    }
    status = Annotate(status, absl::StrCat("pull from ", state_->options.job));
    waits = commits_->FinishLocked(call, status, sink, &effects);
  }
  commits_->Perform(&effects);
  return waits;
}

std::optional<JobCalls::CallId> JobCalls::ScanRows(const v1::ScanRowsRequest& request,
                                                   v1::ScanRowsResponse* response, Done done) {
  JobEffects effects;
  std::optional<CallId> waits;
  {
    absl::ReaderMutexLock lock(&state_->mutex);
    const CallId call = state_->calls.Begin(std::move(done));
    CallSink sink(state_, &effects.ended);
    const absl::Status status = ScanLocked(request, call, response, sink);
    waits = commits_->FinishLocked(
        call, Annotate(status, absl::StrCat("scan of ", state_->options.job)), sink, &effects);
  }
  commits_->Perform(&effects);
  return waits;
}

void JobCalls::Cancel(CallId call) {
  JobEffects effects;
  {
    absl::MutexLock lock(&state_->mutex);
    state_->EndLocked(call, absl::CancelledError("the caller is gone"), &effects.ended);
  }
  commits_->Perform(&effects);
}

std::optional<JobCalls::Ahead> JobCalls::FetchRows(const v1::PullRequest& request) {
  if (!state_->factory->MayKeepRowsOnDisk()) return std::nullopt;
  Ahead ahead;
  {
    absl::ReaderMutexLock lock(&state_->mutex);
    auto keys = checks_.CheckPullLocked(request);
    if (!keys.ok() || !keys->has_value()) return std::nullopt;
    ahead.keys = **std::move(keys);
    int64_t bytes = 0;
    for (int i = 0; i < request.shards_size() && bytes < kFetchBytesMax; ++i) {
      const ShardKey key = KeyOf(request.shards(i));
      absl::MutexLock shard_lock(&state_->engines.at(key)->mutex);
      const RowStore* const rows = state_->tables.Find(key)->rows();
      if (rows == nullptr) continue;
      auto fetch = rows->BeginFetch(ahead.keys[static_cast<size_t>(i)]);
      if (fetch == nullptr) continue;
      bytes += fetch->bytes();
      ahead.fetches.emplace_back(key, std::move(fetch));
    }
  }
  for (const auto& [key, fetch] : ahead.fetches) fetch->Start();
  for (const auto& [key, fetch] : ahead.fetches) fetch->Finish();
  return ahead;
}

absl::StatusOr<std::optional<std::vector<RowKeys>>> JobCalls::KeysOfPullLocked(
    const v1::PullRequest& request, std::optional<Ahead> ahead) {
  if (!ahead.has_value()) return checks_.CheckPullLocked(request);
  CAPSTAN_RETURN_IF_ERROR(checks_.CheckPullHeadLocked(request));
  CAPSTAN_RETURN_IF_ERROR(checks_.CheckPullSizeLocked(request, ahead->keys));
  for (const auto& [key, fetch] : ahead->fetches) {
    // An error is ignored, because the pull will meet it again.
    absl::MutexLock shard_lock(&state_->engines.at(key)->mutex);
    state_->tables.Find(key)->rows()->TakeIn(*fetch).IgnoreError();
  }
  return std::move(ahead->keys);
}

absl::Status JobCalls::PushLocked(const v1::PushRequest& push,
                                  const std::vector<Gradient>& gradients,
                                  v1::PushResponse* response, CallSink& sink) {
  for (int i = 0; i < push.shards_size(); ++i) response->add_shards();
  std::vector<JobTables::BegunPush> begun;
  const auto begin = [&](int i) {
    const v1::ShardPush& shard = push.shards(i);
    sink.SetPushResult(response->mutable_shards(i));
    return state_->tables.BeginPush(KeyOf(shard), DecodePush(push, shard),
                                    gradients[static_cast<size_t>(i)], sink, &begun);
  };
  const auto finish = [&] { return state_->tables.FinishPushes(std::exchange(begun, {}), sink); };
  return state_->ForEachPrimaryLocked(push.shards(), begin, finish);
}

absl::Status JobCalls::PullLocked(const v1::PullRequest& request, const std::vector<RowKeys>& keys,
                                  CallId call, PullAnswer* answer, CallSink& sink,
                                  JobEffects* effects) {
  const Instant now = state_->options.clock->Now();
  const Instant deadline = now + absl::Milliseconds(request.wait_limit_ms());
  std::vector<PullHead> heads;
  for (const v1::ShardPull& shard : request.shards()) {
    const auto index = static_cast<int>(heads.size());
    PullHead head = DecodePull(request, shard).value();  // Checked before.
    head.token = state_->calls.AddPart({.call = call,
                                        .key = KeyOf(shard),
                                        .answer = answer,
                                        .index = index,
                                        .keys = keys[heads.size()]});
    head.deadline = deadline;
    answer->head.add_shards()->set_value_type(shard.value_type());
    answer->values.emplace_back();
    heads.push_back(head);
  }
  CAPSTAN_RETURN_IF_ERROR(state_->ForEachPrimaryLocked(
      request.shards(),
      [&](int i) {
        return state_->tables.Pull(KeyOf(request.shards(i)), heads[static_cast<size_t>(i)], now,
                                   sink);
      },
      kNothingBegun));
  state_->TickAt(deadline, effects);
  return absl::OkStatus();
}

absl::Status JobCalls::ScanLocked(const v1::ScanRowsRequest& request, CallId call,
                                  v1::ScanRowsResponse* response, CallSink& sink) {
  CAPSTAN_RETURN_IF_ERROR(checks_.CheckCallerLocked(request.caller()));
  if (request.bytes_max() < 1 || request.bytes_max() > kScanBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("bytes_max ", request.bytes_max(), ": expected 1 to ", kScanBytesMax));
  }
  const ShardKey key = KeyOf(request);
  CAPSTAN_ASSIGN_OR_RETURN(ShardEngine* const engine, state_->EngineLocked(key));
  absl::MutexLock shard_lock(&engine->mutex);
  CAPSTAN_RETURN_IF_ERROR(state_->CheckPrimaryLocked(*engine));
  const PullHead reader{.token = {},
                        .rank = Rank(request.caller().rank()),
                        .incarnation = Incarnation(request.caller().incarnation()),
                        .iteration = {},
                        .snapshot = true,
                        .deadline = {}};
  CAPSTAN_RETURN_IF_ERROR(state_->tables.CheckPull(key, reader));
  const TableShard& shard = *state_->tables.Find(key);
  if (shard.rows() == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(NameOf(key), ": a dense table has no rows by key: expected a sparse one"));
  }
  RowScan scan{.place = request.place(), .bytes_max = request.bytes_max()};
  if (request.has_since()) {
    CAPSTAN_RETURN_IF_ERROR(checks_.CheckSinceLocked(request.since(), shard.core().version()));
    scan.since = request.since().version();
    scan.unchanged_keys = request.since().unchanged_keys();
  }
  absl::StatusOr<ScannedRows> scanned = shard.rows()->Scan(scan);
  if (!scanned.ok()) {
    const absl::Status status = Annotate(scanned.status(), NameOf(key));
    if (absl::IsUnavailable(status)) state_->tables.Fail(status);  // Another copy can answer.
    return status;
  }
  response->set_version(shard.core().version().value());
  response->set_rows(std::move(scanned->rows));
  response->set_unchanged(std::move(scanned->unchanged));
  response->set_timeline(state_->routing.timeline());
  response->set_end(!scanned->next.has_value());
  response->set_next_place(scanned->next.value_or(0));
  sink.HoldRead(key, call, shard.core().version());
  return absl::OkStatus();
}

}  // namespace capstan::server
