#include "server/service/held_job.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/sparse/wanted_keys.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "server/service/codec.h"
#include "server/service/held_job_sink.h"
#include "server/service/message_checks.h"
#include "server/sparse_table/row_disk.h"
#include "server/table_store/state_codec.h"

namespace capstan::server {
namespace {

KeyListName NameOf(const v1::KeyListName& name) {
  return {.low = name.low(), .high = name.high(), .count = name.count()};
}

// The `finish` of ForEachPrimaryLocked for work that leaves nothing to finish.
constexpr auto kNothingBegun = [] { return absl::OkStatus(); };

// Returns those of a pull's keys whose rows it asks for.
absl::StatusOr<RowKeys> WantedOf(const ShardKey& shard, const RowKeys& keys,
                                 absl::string_view bits) {
  if (keys == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(server::NameOf(shard), ": wanted: expected nothing, the shard is dense"));
  }
  absl::StatusOr<std::vector<uint64_t>> wanted = KeysOfBits(*keys, bits);
  if (!wanted.ok()) return Annotate(wanted.status(), server::NameOf(shard));
  return std::make_shared<const std::vector<uint64_t>>(*std::move(wanted));
}

// Returns a function that sets the bytes of one of the job's memory accounts.
std::function<absl::Status(int64_t)> AccountOf(const ShardFactory& factory,
                                               ShardFactory::Account of) {
  absl::StatusOr<MemoryBudget::Reservation> opened = factory.OpenAccount(of);
  if (!opened.ok()) return [status = opened.status()](int64_t) { return status; };
  auto memory = std::make_shared<MemoryBudget::Reservation>(*std::move(opened));
  return [memory](int64_t bytes) { return memory->Resize(bytes); };
}

}  // namespace

HeldJob::HeldJob(Options options, std::shared_ptr<const ShardFactory> factory)
    : options_(std::move(options)),
      link_options_{.job = options_.job,
                    .node = options_.node,
                    .safe_replies = options_.safe_replies,
                    .log = options_.log,
                    .log_snapshot_bytes_max = options_.log_snapshot_bytes_max,
                    .log_bytes = &log_bytes_,
                    .capture = [this](const ShardKey& key) { return CaptureAll(key); }},
      factory_(std::move(factory)),
      install_memory_(
          std::make_shared<InstallMemory>(AccountOf(*factory_, ShardFactory::Account::kInstalls))),
      key_lists_(options_.key_lists, AccountOf(*factory_, ShardFactory::Account::kKeyLists)),
      tables_(factory_),
      snapshots_(options_.snapshots, AccountOf(*factory_, ShardFactory::Account::kSnapshots)) {}

std::optional<HeldJob::CallId> HeldJob::Push(const PushMessage& push, v1::PushResponse* response,
                                             Done done) {
  Effects effects;
  std::optional<CallId> waits;
  {
    absl::ReaderMutexLock lock(&mutex_);
    const CallId call = calls_.Begin(std::move(done));
    Sink sink(this, &effects.ended);
    sink.SetPushCall(call);
    const auto gradients = CheckPushLocked(push);
    absl::Status status = gradients.status();
    if (status.ok() && !gradients->has_value()) response->set_unknown_key_list(true);
    if (status.ok() && gradients->has_value()) {
      status = PushLocked(push.head, **gradients, response, sink);
    }
    status = Annotate(status, absl::StrCat("push to ", options_.job));
    waits = FinishLocked(call, status, sink, &effects);
  }
  Perform(&effects);
  return waits;
}

std::optional<HeldJob::CallId> HeldJob::Pull(const v1::PullRequest& request, PullAnswer* answer,
                                             Done done) {
  std::optional<Ahead> ahead = FetchRows(request);
  Effects effects;
  std::optional<CallId> waits;
  {
    absl::ReaderMutexLock lock(&mutex_);
    const CallId call = calls_.Begin(std::move(done));
    Sink sink(this, &effects.ended);
    const auto keys = KeysOfPullLocked(request, std::move(ahead));
    absl::Status status = keys.status();
    if (status.ok() && !keys->has_value()) answer->head.set_unknown_key_list(true);
    if (status.ok() && keys->has_value()) {
      status = PullLocked(request, **keys, call, answer, sink, &effects);
    }
    status = Annotate(status, absl::StrCat("pull from ", options_.job));
    waits = FinishLocked(call, status, sink, &effects);
  }
  Perform(&effects);
  return waits;
}

std::optional<HeldJob::CallId> HeldJob::ScanRows(const v1::ScanRowsRequest& request,
                                                 v1::ScanRowsResponse* response, Done done) {
  Effects effects;
  std::optional<CallId> waits;
  {
    absl::ReaderMutexLock lock(&mutex_);
    const CallId call = calls_.Begin(std::move(done));
    Sink sink(this, &effects.ended);
    const absl::Status status = ScanLocked(request, call, response, sink);
    waits = FinishLocked(call, Annotate(status, absl::StrCat("scan of ", options_.job)), sink,
                         &effects);
  }
  Perform(&effects);
  return waits;
}

void HeldJob::Cancel(CallId call) {
  Effects effects;
  {
    absl::MutexLock lock(&mutex_);
    EndLocked(call, absl::CancelledError("the caller is gone"), &effects);
  }
  Perform(&effects);
}

void HeldJob::Perform(Effects* effects) {
  PerformAlone(effects);
  for (const auto& [done, status] : effects->ended) done(status);
  Send(effects->sends);
  if (effects->tick.has_value() && options_.schedule_tick) options_.schedule_tick(*effects->tick);
  if (effects->report && options_.on_report) options_.on_report();
}

void HeldJob::PerformAlone(Effects* effects) {
  if (!effects->failed && effects->deposed.empty() && !effects->snapshots_full) return;
  absl::MutexLock lock(&mutex_);
  if (effects->failed) EndLocked(effects->failed->first, effects->failed->second, effects);
  for (const ShardKey& key : effects->deposed) {
    const absl::StatusOr<ShardEngine*> engine = EngineLocked(key);
    if (!engine.ok()) continue;
    absl::Status lost;
    {
      absl::MutexLock shard_lock(&(*engine)->mutex);
      if ((*engine)->link.replication().deposed()) lost = CheckPrimary(**engine);
    }
    if (!lost.ok()) EndWaitingForLocked(key, lost, effects);
  }
  if (effects->snapshots_full) snapshots_.Settle(tables_);
}

absl::Status HeldJob::CheckCallerLocked(const v1::Caller& caller) const {
  CAPSTAN_RETURN_IF_ERROR(closed_);
  CAPSTAN_RETURN_IF_ERROR(failure_);
  CAPSTAN_RETURN_IF_ERROR(CheckCaller(caller));
  const uint64_t held = routing_.generation();
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

absl::StatusOr<ShardEngine*> HeldJob::EngineLocked(const ShardKey& key) const {
  const auto it = engines_.find(key);
  if (it != engines_.end()) return it->second.get();
  return NotHeldLocked(key);
}

absl::Status HeldJob::NotHeldLocked(const ShardKey& key) const {
  return absl::NotFoundError(absl::StrCat(NameOf(key), " is not held here: this server holds ",
                                          engines_.size(),
                                          " shards of the job; fetch the routing table"));
}

absl::Status HeldJob::CheckHeldLocked(const ShardKey& key) const {
  return tables_.Find(key) != nullptr ? absl::OkStatus() : NotHeldLocked(key);
}

template <typename Shards, typename Work, typename Finish>
absl::Status HeldJob::ForEachPrimaryLocked(const Shards& shards, const Work& work,
                                           const Finish& finish) const {
  std::vector<ShardEngine*> updating;  // Their updates are unfinished, and their locks are kept.
  const auto work_locked = [&](int i, ShardEngine& engine) {
    absl::Status status = CheckPrimary(engine);
    if (status.ok()) status = work(i);
    if (status.ok() && tables_.Find(KeyOf(shards[i]))->store().updating()) {
      updating.push_back(&engine);
    } else {
      engine.mutex.Unlock();
    }
    return status;
  };
  const auto finish_locked = [&] {
    absl::Status status = finish();
    for (ShardEngine* const engine : updating) engine->mutex.Unlock();
    updating.clear();
    return status;
  };
  absl::Status status;
  std::vector<int> busy;
  for (int i = 0; i < shards.size() && status.ok(); ++i) {
    const absl::StatusOr<ShardEngine*> engine = EngineLocked(KeyOf(shards[i]));
    if (!engine.ok()) {
      status = engine.status();
    } else if ((*engine)->mutex.TryLock()) {
      status = work_locked(i, **engine);
    } else {
      busy.push_back(i);
    }
  }
  status.Update(finish_locked());  // Also finishes the shards before one that has failed.
  for (size_t b = 0; b < busy.size() && status.ok(); ++b) {
    ShardEngine& engine = *engines_.at(KeyOf(shards[busy[b]]));
    engine.mutex.Lock();  // No other shard is locked, so messages cannot wait for each other.
    status = work_locked(busy[b], engine);
    status.Update(finish_locked());
  }
  return status;
}

absl::Status HeldJob::CheckPrimary(const ShardEngine& engine) const {
  const ShardKey key = engine.link.shard().key;
  if (!engine.link.is_primary()) return NotHeldLocked(key);
  if (engine.link.replication().deposed()) {
    return absl::FailedPreconditionError(absl::StrCat(
        NameOf(key), " has another primary now; fetch the routing table and send again"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<std::vector<Gradient>>> HeldJob::CheckPushLocked(
    const PushMessage& push) {
  const v1::PushRequest& request = push.head;
  CAPSTAN_RETURN_IF_ERROR(CheckCallerLocked(request.caller()));
  if (request.caller().rank() == kReaderRank.value()) {
    return absl::InvalidArgumentError("rank -1: a reader that is no worker may not push");
  }
  CAPSTAN_RETURN_IF_ERROR(CheckShardList(request.shards(), kShardsPerMessageMax));
  std::vector<Gradient> gradients;
  gradients.reserve(push.values.size());
  for (int i = 0; i < request.shards_size(); ++i) {
    const v1::ShardPush& shard = request.shards(i);
    const ShardKey key = KeyOf(shard);
    CAPSTAN_RETURN_IF_ERROR(CheckHeldLocked(key));
    const absl::StatusOr<NumberFormat> format = FormatOf(shard.value_type());
    if (!format.ok()) return Annotate(format.status(), NameOf(key));
    RowKeys listed;
    if (shard.has_key_list()) {
      listed = key_lists_.Find(Rank(request.caller().rank()),
                               Incarnation(request.caller().incarnation()), key,
                               NameOf(shard.key_list()));
      if (listed == nullptr) return std::nullopt;
    }
    CAPSTAN_ASSIGN_OR_RETURN(
        Gradient gradient,
        tables_.ParseGradient(key, push.values[static_cast<size_t>(i)], *format, listed));
    gradients.push_back(std::move(gradient));
  }
  CAPSTAN_RETURN_IF_ERROR(ForEachPrimaryLocked(
      request.shards(),
      [&](int i) {
        const v1::ShardPush& shard = request.shards(i);
        return tables_.CheckPush(KeyOf(shard), DecodePush(request, shard),
                                 gradients[static_cast<size_t>(i)]);
      },
      kNothingBegun));
  return gradients;
}

absl::StatusOr<std::optional<RowKeys>> HeldJob::KeysOfLocked(const v1::Caller& caller,
                                                             const v1::ShardPull& shard) {
  const ShardKey key = KeyOf(shard);
  const Rank rank(caller.rank());
  const Incarnation incarnation(caller.incarnation());
  const KeyListName name = NameOf(shard.key_list());
  RowKeys keys;
  if (shard.has_key_list() && shard.keys().empty()) {
    keys = key_lists_.Find(rank, incarnation, key, name);
    if (keys == nullptr) return std::nullopt;
  } else {
    absl::StatusOr<RowKeys> parsed = tables_.Find(key)->store().ParseKeys(shard.keys());
    if (!parsed.ok()) return Annotate(parsed.status(), NameOf(key));
    keys = *std::move(parsed);
    if (shard.has_key_list() && name.count != std::ssize(*keys)) {
      return absl::InvalidArgumentError(
          absl::StrCat(NameOf(key), ": a list of ", name.count, " keys comes with ", keys->size()));
    }
    if (shard.has_key_list() && rank != kReaderRank) {
      key_lists_.Keep(rank, incarnation, key, name, keys);
    }
  }
  if (shard.wanted().empty()) return keys;
  return WantedOf(key, keys, shard.wanted());
}

absl::StatusOr<std::optional<std::vector<RowKeys>>> HeldJob::CheckPullLocked(
    const v1::PullRequest& request) {
  CAPSTAN_RETURN_IF_ERROR(CheckPullHeadLocked(request));
  std::vector<RowKeys> keys;
  for (const v1::ShardPull& shard : request.shards()) {
    CAPSTAN_ASSIGN_OR_RETURN(std::optional<RowKeys> of_shard,
                             KeysOfLocked(request.caller(), shard));
    if (!of_shard.has_value()) return std::nullopt;
    keys.push_back(*std::move(of_shard));
  }
  CAPSTAN_RETURN_IF_ERROR(CheckPullSizeLocked(request, keys));
  return keys;
}

absl::Status HeldJob::CheckPullHeadLocked(const v1::PullRequest& request) const {
  CAPSTAN_RETURN_IF_ERROR(CheckCallerLocked(request.caller()));
  CAPSTAN_RETURN_IF_ERROR(CheckShardList(request.shards(), kShardsPerMessageMax));
  if (request.wait_limit_ms() < 0 || request.wait_limit_ms() > kWaitLimitMsMax) {
    return absl::InvalidArgumentError(absl::StrCat("wait_limit_ms ", request.wait_limit_ms(),
                                                   ": expected 0 to ", kWaitLimitMsMax));
  }
  return ForEachPrimaryLocked(
      request.shards(),
      [&](int i) -> absl::Status {
        const v1::ShardPull& shard = request.shards(i);
        const absl::StatusOr<PullHead> head = DecodePull(request, shard);
        if (!head.ok()) return Annotate(head.status(), NameOf(KeyOf(shard)));
        return tables_.CheckPull(KeyOf(shard), *head);
      },
      kNothingBegun);
}

absl::Status HeldJob::CheckPullSizeLocked(const v1::PullRequest& request,
                                          const std::vector<RowKeys>& keys) const {
  int64_t answer_bytes = 0;
  int64_t key_bytes = calls_.key_bytes();
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] != nullptr) key_bytes += static_cast<int64_t>(keys[i]->size() * sizeof(uint64_t));
    const ShardStore& store = tables_.Find(KeyOf(request.shards(static_cast<int>(i))))->store();
    answer_bytes += store.AnswerElements(keys[i]) * static_cast<int64_t>(sizeof(float));
  }
  if (answer_bytes > kAnswerBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("asks for ", answer_bytes, " bytes of values in one answer: expected at most ",
                     kAnswerBytesMax));
  }
  if (key_bytes > kWaitingKeyBytesMax) {
    return absl::ResourceExhaustedError(absl::StrCat("pulls that wait hold ", calls_.key_bytes(),
                                                     " bytes of keys, with this one ", key_bytes,
                                                     ": expected at most ", kWaitingKeyBytesMax));
  }
  return absl::OkStatus();
}

std::optional<HeldJob::Ahead> HeldJob::FetchRows(const v1::PullRequest& request) {
  if (!factory_->MayKeepRowsOnDisk()) return std::nullopt;
  Ahead ahead;
  {
    absl::ReaderMutexLock lock(&mutex_);
    auto keys = CheckPullLocked(request);
    if (!keys.ok() || !keys->has_value()) return std::nullopt;
    ahead.keys = **std::move(keys);
    int64_t bytes = 0;
    for (int i = 0; i < request.shards_size() && bytes < kFetchBytesMax; ++i) {
      const ShardKey key = KeyOf(request.shards(i));
      absl::MutexLock shard_lock(&engines_.at(key)->mutex);
      const RowStore* const rows = tables_.Find(key)->rows();
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

absl::StatusOr<std::optional<std::vector<RowKeys>>> HeldJob::KeysOfPullLocked(
    const v1::PullRequest& request, std::optional<Ahead> ahead) {
  if (!ahead.has_value()) return CheckPullLocked(request);
  CAPSTAN_RETURN_IF_ERROR(CheckPullHeadLocked(request));
  CAPSTAN_RETURN_IF_ERROR(CheckPullSizeLocked(request, ahead->keys));
  for (const auto& [key, fetch] : ahead->fetches) {
    // An error is ignored, because the pull will meet it again.
    absl::MutexLock shard_lock(&engines_.at(key)->mutex);
    tables_.Find(key)->rows()->TakeIn(*fetch).IgnoreError();
  }
  return std::move(ahead->keys);
}

absl::Status HeldJob::PushLocked(const v1::PushRequest& push,
                                 const std::vector<Gradient>& gradients, v1::PushResponse* response,
                                 Sink& sink) {
  for (int i = 0; i < push.shards_size(); ++i) response->add_shards();
  std::vector<JobTables::BegunPush> begun;
  const auto begin = [&](int i) {
    const v1::ShardPush& shard = push.shards(i);
    sink.SetPushResult(response->mutable_shards(i));
    return tables_.BeginPush(KeyOf(shard), DecodePush(push, shard),
                             gradients[static_cast<size_t>(i)], sink, &begun);
  };
  const auto finish = [&] { return tables_.FinishPushes(std::exchange(begun, {}), sink); };
  return ForEachPrimaryLocked(push.shards(), begin, finish);
}

absl::Status HeldJob::PullLocked(const v1::PullRequest& request, const std::vector<RowKeys>& keys,
                                 CallId call, PullAnswer* answer, Sink& sink, Effects* effects) {
  const Instant now = options_.clock->Now();
  const Instant deadline = now + absl::Milliseconds(request.wait_limit_ms());
  std::vector<PullHead> heads;
  for (const v1::ShardPull& shard : request.shards()) {
    const auto index = static_cast<int>(heads.size());
    PullHead head = DecodePull(request, shard).value();  // Checked before.
    head.token = calls_.AddPart({.call = call,
                                 .key = KeyOf(shard),
                                 .answer = answer,
                                 .index = index,
                                 .keys = keys[heads.size()]});
    head.deadline = deadline;
    answer->head.add_shards()->set_value_type(shard.value_type());
    answer->values.emplace_back();
    heads.push_back(head);
  }
  CAPSTAN_RETURN_IF_ERROR(ForEachPrimaryLocked(
      request.shards(),
      [&](int i) {
        return tables_.Pull(KeyOf(request.shards(i)), heads[static_cast<size_t>(i)], now, sink);
      },
      kNothingBegun));
  TickAt(deadline, effects);
  return absl::OkStatus();
}

absl::Status HeldJob::ScanLocked(const v1::ScanRowsRequest& request, CallId call,
                                 v1::ScanRowsResponse* response, Sink& sink) {
  CAPSTAN_RETURN_IF_ERROR(CheckCallerLocked(request.caller()));
  if (request.bytes_max() < 1 || request.bytes_max() > kScanBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("bytes_max ", request.bytes_max(), ": expected 1 to ", kScanBytesMax));
  }
  const ShardKey key = KeyOf(request);
  CAPSTAN_ASSIGN_OR_RETURN(ShardEngine* const engine, EngineLocked(key));
  absl::MutexLock shard_lock(&engine->mutex);
  CAPSTAN_RETURN_IF_ERROR(CheckPrimary(*engine));
  const PullHead reader{.token = {},
                        .rank = Rank(request.caller().rank()),
                        .incarnation = Incarnation(request.caller().incarnation()),
                        .iteration = {},
                        .snapshot = true,
                        .deadline = {}};
  CAPSTAN_RETURN_IF_ERROR(tables_.CheckPull(key, reader));
  const TableShard& shard = *tables_.Find(key);
  if (shard.rows() == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(NameOf(key), ": a dense table has no rows by key: expected a sparse one"));
  }
  RowScan scan{.place = request.place(), .bytes_max = request.bytes_max()};
  if (request.has_since()) {
    CAPSTAN_RETURN_IF_ERROR(CheckSinceLocked(request.since(), shard.core().version()));
    scan.since = request.since().version();
    scan.unchanged_keys = request.since().unchanged_keys();
  }
  absl::StatusOr<ScannedRows> scanned = shard.rows()->Scan(scan);
  if (!scanned.ok()) {
    const absl::Status status = Annotate(scanned.status(), NameOf(key));
    if (absl::IsUnavailable(status)) tables_.Fail(status);  // Another copy can answer.
    return status;
  }
  response->set_version(shard.core().version().value());
  response->set_rows(std::move(scanned->rows));
  response->set_unchanged(std::move(scanned->unchanged));
  response->set_timeline(timeline_);
  response->set_end(!scanned->next.has_value());
  response->set_next_place(scanned->next.value_or(0));
  sink.HoldRead(key, call, shard.core().version());
  return absl::OkStatus();
}

absl::Status HeldJob::CheckSinceLocked(const v1::ScanSince& since, Version present) const {
  if (since.timeline() != timeline_) {
    return absl::OutOfRangeError(absl::StrCat(
        "version ", since.version(), " is of timeline ", since.timeline(), ", the present one is ",
        timeline_, ": the job has gone back to a checkpoint since; ask for all rows"));
  }
  if (since.version() >= 0 && since.version() <= present.value()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("rows since version ", since.version(),
                                                 ": expected 0 to ", present.value(),
                                                 ", the present one"));
}

std::optional<HeldJob::CallId> HeldJob::FinishLocked(CallId call, const absl::Status& status,
                                                     Sink& sink, Effects* effects) {
  if (!status.ok()) effects->failed = {call, status};
  SettleLocked(sink, effects);
  if (!status.ok() || !calls_.Seal(call, &effects->ended)) return std::nullopt;
  return call;
}

void HeldJob::EndLocked(CallId call, const absl::Status& status, Effects* effects) {
  for (const auto& [token, key] : calls_.End(call, status, &effects->ended)) {
    tables_.CancelPull(key, token);
  }
}

void HeldJob::EndWaitingForLocked(const ShardKey& key, const absl::Status& status,
                                  Effects* effects) {
  for (const CallId call : calls_.WaitingFor(key)) EndLocked(call, status, effects);
}

}  // namespace capstan::server
