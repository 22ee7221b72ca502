#include "server/engine/job/job_state.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "server/store/memory_budget.h"

namespace capstan::server {
namespace {

// Returns a function that sets the bytes of one of the job's memory accounts.
std::function<absl::Status(int64_t)> AccountOf(const ShardFactory& factory,
                                               ShardFactory::Account of) {
  absl::StatusOr<MemoryBudget::Reservation> opened = factory.OpenAccount(of);
  if (!opened.ok()) return [status = opened.status()](int64_t) { return status; };
  auto memory = std::make_shared<MemoryBudget::Reservation>(*std::move(opened));
  return [memory](int64_t bytes) { return memory->Resize(bytes); };
}

}  // namespace

JobState::JobState(Options job_options, std::shared_ptr<const ShardFactory> shard_factory,
                   std::function<std::weak_ptr<void>()> weak, CaptureShard capture)
    : options(std::move(job_options)),
      weak_job(std::move(weak)),
      link_options{.job = options.job,
                   .node = options.node,
                   .safe_replies = options.safe_replies,
                   .log = options.log,
                   .log_snapshot_bytes_max = options.log_snapshot_bytes_max,
                   .log_bytes = &log_bytes,
                   .capture = std::move(capture)},
      factory(std::move(shard_factory)),
      install_memory(
          std::make_shared<InstallMemory>(AccountOf(*factory, ShardFactory::Account::kInstalls))),
      key_lists(options.key_lists, AccountOf(*factory, ShardFactory::Account::kKeyLists)),
      routing({.node = options.node, .incarnation = options.incarnation}),
      tables(factory),
      snapshots(options.snapshots, AccountOf(*factory, ShardFactory::Account::kSnapshots)) {}

absl::Status JobState::CheckOpenLocked() const {
  CAPSTAN_RETURN_IF_ERROR(closed);
  CAPSTAN_RETURN_IF_ERROR(failure);
  return tables.failure();
}

absl::StatusOr<ShardEngine*> JobState::EngineLocked(const ShardKey& key) const {
  const auto it = engines.find(key);
  if (it != engines.end()) return it->second.get();
  return NotHeldLocked(key);
}

absl::Status JobState::NotHeldLocked(const ShardKey& key) const {
  return absl::NotFoundError(absl::StrCat(NameOf(key), " is not held here: this server holds ",
                                          engines.size(),
                                          " shards of the job; fetch the routing table"));
}

absl::Status JobState::CheckPrimaryLocked(const ShardEngine& engine) const {
  const ShardKey key = engine.link.shard().key;
  if (!engine.link.is_primary()) return NotHeldLocked(key);
  if (engine.link.replication().primary().deposed()) return ReplacedError(key);
  return absl::OkStatus();
}

absl::Status JobState::ReplacedError(const ShardKey& key) {
  return absl::FailedPreconditionError(absl::StrCat(
      NameOf(key), " has another primary now; fetch the routing table and send again"));
}

std::vector<ShardKey> JobState::PrimariesLocked() const {
  std::vector<ShardKey> keys;
  for (const auto& [key, engine] : engines) {
    absl::MutexLock shard_lock(&engine->mutex);
    if (engine->link.is_primary()) keys.push_back(key);
  }
  return keys;
}

bool JobState::LogsBegunLocked() const {
  return std::all_of(engines.begin(), engines.end(), [](const auto& entry) {
    absl::MutexLock shard_lock(&entry.second->mutex);
    const ShardLink& link = entry.second->link;
    return !link.is_primary() || link.log_begun();
  });
}

void JobState::EndLocked(CallId call, const absl::Status& status, EndedCalls* ended) {
  for (const auto& [token, key] : calls.End(call, status, ended)) {
    tables.CancelPull(key, token);
  }
}

void JobState::EndWaitingForLocked(const ShardKey& key, const absl::Status& status,
                                   EndedCalls* ended) {
  for (const CallId call : calls.WaitingFor(key)) EndLocked(call, status, ended);
}

void JobState::UnpinUnreadLocked() {
  for (const auto& [key, pin] : unread.Take()) {
    const auto engine = engines.find(key);
    if (engine == engines.end()) continue;
    absl::MutexLock shard_lock(&engine->second->mutex);
    tables.Unpin(key, pin);
  }
}

void JobState::AskForTick(Instant at) {
  absl::MutexLock lock(&tick_mutex);
  tick_asked = at;
}

void JobState::TickAt(Instant at, JobEffects* effects) {
  absl::MutexLock lock(&tick_mutex);
  if (at >= tick_asked) return;
  tick_asked = at;
  effects->tick = at;
}

}  // namespace capstan::server
