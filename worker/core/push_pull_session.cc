#include "worker/core/push_pull_session.h"

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/planted/planted_bug.h"

namespace capstan::worker {
namespace {

constexpr int64_t kShardsMax = 4096;     // The most shards of one message.
constexpr int64_t kBytesPerElement = 4;  // fp32.

bool IsRetryable(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnknown:   // The message may or may not have taken effect.
    case absl::StatusCode::kNotFound:  // The server restarted empty: the scheduler handles it.
      return true;
    default:
      return false;
  }
}

}  // namespace

bool IsAnswer(const absl::Status& status) {
  return !absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status) &&
         !absl::IsCancelled(status) && !absl::IsUnknown(status);
}

int64_t MessageBytes(const ShardRoute& shard) {
  return shard.message_bytes > 0 ? shard.message_bytes : shard.elements.size() * kBytesPerElement;
}

PushPullSession::PushPullSession(const Options& options) : options_(options) {}

void PushPullSession::SetRouting(const Routing& routing, Instant now, SessionActions* actions) {
  if (routing.generation <= routing_.generation && !routing_.shards.empty()) return;
  // A job's shards never change, only their places do: per-shard state keeps its index.
  per_shard_.resize(routing.shards.size());
  const std::vector<bool> changed = ChangedPrimaries(routing);
  const Routing before = std::exchange(routing_, routing);
  ReplaceChunks(before, changed);
  KeepContacts(before, now);
  for (size_t i = 0; i < changed.size(); ++i) {
    if (!changed[i]) continue;
    per_shard_[i].held_version = -1;
    for (auto& [id, op] : ops_) {
      if (op.request.kind != OpKind::kPull || op.shards[i] != ShardState::kDone) continue;
      op.shards[i] = ShardState::kTodo;
      op.reread = true;
      ++op.undone;
    }
  }
  for (auto& [id, op] : ops_) op.heard = now;
  NoteNeed(now, actions);
  Pump(now, actions);
}

PushPullSession::Process PushPullSession::ProcessOf(const Routing& table, size_t server) {
  const auto at = [server](const auto& list) {
    return server < list.size() ? list[server] : std::decay_t<decltype(list[server])>();
  };
  return {table.servers[server], at(table.addresses), at(table.incarnations)};
}

std::vector<bool> PushPullSession::ChangedPrimaries(const Routing& routing) const {
  const auto process = [](const Routing& table, size_t shard) {
    return ProcessOf(table, static_cast<size_t>(table.shards[shard].server));
  };
  std::vector<bool> changed(routing.shards.size(), true);
  for (size_t i = 0; i < std::min(changed.size(), routing_.shards.size()); ++i) {
    changed[i] = routing_.shards[i].term != routing.shards[i].term ||
                 process(routing_, i) != process(routing, i);
  }
  return changed;
}

int64_t PushPullSession::ChunkBytes(int server) const {
  int64_t bytes = 0;
  for (const ShardRoute& shard : routing_.shards) {
    if (shard.server == server) bytes += MessageBytes(shard);
  }
  return std::clamp(bytes / options_.chunks_wanted, options_.chunk_bytes_min,
                    options_.chunk_bytes_max);
}

std::vector<PushPullSession::Chunk> PushPullSession::MakeChunks() const {
  std::vector<Chunk> chunks;
  for (size_t server = 0; server < routing_.servers.size(); ++server) {
    const int64_t limit = ChunkBytes(static_cast<int>(server));
    int64_t bytes = 0;
    bool open = false;
    for (size_t i = 0; i < routing_.shards.size(); ++i) {
      const ShardRoute& shard = routing_.shards[i];
      if (shard.server != static_cast<int>(server)) continue;
      const int64_t shard_bytes = MessageBytes(shard);
      const bool many = open && std::ssize(chunks.back().shards) == kShardsMax;
      const bool other_table =
          open && options_.table_chunks &&
          routing_.shards[static_cast<size_t>(chunks.back().shards.back())].key.table !=
              shard.key.table;
      if (!open || many || other_table || bytes + shard_bytes > limit) {
        chunks.push_back(Chunk{.server = static_cast<int>(server)});
        open = true;
        bytes = 0;
      }
      chunks.back().shards.push_back(static_cast<int>(i));
      bytes += shard_bytes;
    }
  }
  return chunks;
}

void PushPullSession::ReplaceChunks(const Routing& before, const std::vector<bool>& changed) {
  std::map<std::vector<int>, int> kept;  // Chunks without a new primary, by their shards.
  std::vector<Chunk> chunks = MakeChunks();
  for (size_t c = 0; c < chunks.size(); ++c) {
    const std::vector<int>& shards = chunks[c].shards;
    const bool same = std::none_of(shards.begin(), shards.end(),
                                   [&changed](int i) { return changed[static_cast<size_t>(i)]; });
    if (same && !before.shards.empty()) kept[shards] = static_cast<int>(c);
  }
  const std::vector<Chunk> old = std::exchange(chunks_, std::move(chunks));
  for (auto it = in_flight_.begin(); it != in_flight_.end();) {
    InFlight& message = it->second;
    const auto place = kept.find(old[static_cast<size_t>(message.chunk)].shards);
    if (place != kept.end()) {
      message.chunk = place->second;
      Chunk& chunk = chunks_[static_cast<size_t>(message.chunk)];
      ++(message.kind == OpKind::kPush ? chunk.pushes : chunk.pulls);
      ++it;
      continue;
    }
    Op& op = ops_.at(message.op);
    for (const int i : message.shards) op.shards[static_cast<size_t>(i)] = ShardState::kTodo;
    it = in_flight_.erase(it);
  }
}

absl::Status PushPullSession::CheckStart(const OpRequest& request) const {
  if (!failed_.ok()) return failed_;
  if (routing_.shards.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(VerbOf(request.kind), ": no routing table has been received yet"));
  }
  if (static_cast<int>(ops_.size()) >= options_.operations_max) {
    return absl::ResourceExhaustedError(absl::StrCat(VerbOf(request.kind), ": ", ops_.size(),
                                                     " operations are in flight, at most ",
                                                     options_.operations_max));
  }
  return absl::OkStatus();
}

absl::Status PushPullSession::Start(OpId id, const OpRequest& request, Instant now,
                                    SessionActions* actions, std::vector<int64_t> shard_bytes) {
  if (absl::Status status = CheckStart(request); !status.ok()) return status;
  Op op{.request = request, .started = now, .heard = now, .shard_bytes = std::move(shard_bytes)};
  op.shards.assign(routing_.shards.size(), ShardState::kNone);
  op.replies.resize(request.kind == OpKind::kPull ? op.shards.size() : 0);
  op.sequences.resize(request.kind == OpKind::kPush ? op.shards.size() : 0);
  for (size_t i = 0; i < op.shards.size(); ++i) {
    if (request.table.value_or(routing_.shards[i].key.table) != routing_.shards[i].key.table) {
      continue;
    }
    op.shards[i] = request.held ? ShardState::kHeld : ShardState::kTodo;
    ++op.undone;
    if (request.kind != OpKind::kPush) continue;
    PerShard& shard = per_shard_[i];
    op.sequences[i] = shard.next;
    shard.unanswered[shard.next] = true;
    ++shard.next;
  }
  if (op.undone == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(VerbOf(request.kind), ": the job has no table ", request.table->value()));
  }
  ops_[id] = std::move(op);
  if (ops_.size() == 1) probe_at_ = now + options_.probe_interval;
  Pump(now, actions);
  return absl::OkStatus();
}

void PushPullSession::Release(OpId id, TableId table, int64_t first, Instant now,
                              SessionActions* actions) {
  const auto found = ops_.find(id);
  if (found == ops_.end()) return;
  Op& op = found->second;
  op.heard = now;
  for (size_t i = 0; i < op.shards.size(); ++i) {
    const ShardRoute& shard = routing_.shards[i];
    if (op.shards[i] != ShardState::kHeld || shard.key.table != table) continue;
    if (shard.elements.begin >= first) op.shards[i] = ShardState::kTodo;
  }
  Pump(now, actions);
}

bool PushPullSession::HasShard(const Chunk& chunk, const Op& op, ShardState state) {
  return std::any_of(chunk.shards.begin(), chunk.shards.end(),
                     [&op, state](int i) { return op.shards[static_cast<size_t>(i)] == state; });
}

bool PushPullSession::MaySend(const Chunk& chunk, OpKind kind) const {
  if (Planted(PlantedBug::kReadBeforeOwnWrites) && kind == OpKind::kPull) return chunk.pulls == 0;
  if (!BothMayBeInFlight()) return chunk.pushes + chunk.pulls == 0;
  return kind == OpKind::kPush ? chunk.pushes == 0 || AwaitsIterations() : chunk.pulls == 0;
}

OpId PushPullSession::NextOpOf(const Chunk& chunk) const {
  // There may be hundreds of operations, and most chunks have a message in flight.
  if (!MaySend(chunk, OpKind::kPush) && !MaySend(chunk, OpKind::kPull)) return OpId(0);
  bool held = false;  // An earlier push waits for its values; only early pulls overtake it.
  for (const auto& [id, op] : ops_) {
    const bool may_pass = !held || op.request.kind == OpKind::kPull;
    if (may_pass && HasShard(chunk, op, ShardState::kTodo) && MaySend(chunk, op.request.kind)) {
      return id;
    }
    held = held || HasShard(chunk, op, ShardState::kHeld);
    if (held && !options_.early_pulls) break;
  }
  return OpId(0);
}

void PushPullSession::Pump(Instant now, SessionActions* actions) {
  for (size_t c = 0; c < chunks_.size(); ++c) {
    Chunk& chunk = chunks_[c];
    if (now < chunk.not_before) continue;
    for (OpId next = NextOpOf(chunk); next != OpId(0); next = NextOpOf(chunk)) {
      SendChunk(static_cast<int>(c), next, ops_.at(next), actions);
    }
  }
}

void PushPullSession::SendChunk(int chunk_index, OpId op_id, Op& op, SessionActions* actions) {
  std::vector<int> shards;
  int64_t bytes = 0;
  for (const int i : chunks_[static_cast<size_t>(chunk_index)].shards) {
    const auto index = static_cast<size_t>(i);
    if (op.shards[index] != ShardState::kTodo) continue;
    const int64_t shard_bytes = op.shard_bytes.empty() ? 0 : op.shard_bytes[index];
    if (!shards.empty() && bytes + shard_bytes > options_.chunk_bytes_max) {
      SendShards(chunk_index, op_id, op, std::exchange(shards, {}), actions);
      bytes = 0;
    }
    shards.push_back(i);
    bytes += shard_bytes;
  }
  SendShards(chunk_index, op_id, op, std::move(shards), actions);
}

void PushPullSession::SendShards(int chunk_index, OpId op_id, Op& op, std::vector<int> shards,
                                 SessionActions* actions) {
  Chunk& chunk = chunks_[static_cast<size_t>(chunk_index)];
  SendMessage message{.message = MessageId(next_message_++),
                      .op = op_id,
                      .request = op.request,
                      .server = chunk.server,
                      .generation = routing_.generation};
  for (const int i : shards) {
    const auto index = static_cast<size_t>(i);
    op.shards[index] = ShardState::kInFlight;
    SendMessage::Shard shard{.key = routing_.shards[index].key,
                             .elements = routing_.shards[index].elements};
    if (op.request.kind == OpKind::kPush) {
      shard.sequence = op.sequences[index];
      shard.sequence_low_water = per_shard_[index].unanswered.begin()->first;
      if (Planted(PlantedBug::kRenumberRepeatedPush)) {
        shard.sequence = per_shard_[index].next;
        ++per_shard_[index].next;
      }
    } else {
      const PerShard& held = per_shard_[index];
      const bool usable = !options_.exact_snapshots || held.held_of_snapshot == op.request.snapshot;
      shard.held_version = usable ? held.held_version : -1;
    }
    message.shards.push_back(shard);
  }
  ++(op.request.kind == OpKind::kPush ? chunk.pushes : chunk.pulls);
  in_flight_[message.message] = {.op = op_id,
                                 .kind = op.request.kind,
                                 .chunk = chunk_index,
                                 .shards = std::move(shards),
                                 .generation = routing_.generation};
  actions->send.push_back(std::move(message));
}

bool PushPullSession::OnReply(MessageId message, const absl::Status& status,
                              const std::vector<ShardReply>& replies,
                              const std::vector<Waiting>& waiting, Instant now,
                              SessionActions* actions) {
  const auto found = in_flight_.find(message);
  if (found == in_flight_.end()) return false;
  const InFlight record = std::move(found->second);
  in_flight_.erase(found);
  Forget(record);
  Chunk& chunk = chunks_[static_cast<size_t>(record.chunk)];
  Op& op = ops_.at(record.op);
  if (IsAnswer(status)) contacts_[static_cast<size_t>(chunk.server)] = {.heard = now};
  absl::Status outcome = status;
  if (outcome.ok() && replies.size() != record.shards.size()) {
    outcome = absl::InternalError(
        absl::StrCat("answered ", replies.size(), " shards, expected ", record.shards.size()));
  }
  if (outcome.ok()) {
    chunk.delay = absl::ZeroDuration();
    chunk.trouble = Trouble::kNone;
    op.heard = now;
    op.waiting_on = waiting;
    RecordReplies(record, op, replies);
    if (op.undone == 0) Finish(record.op, absl::OkStatus(), actions);
  } else if (outcome.code() == absl::StatusCode::kAborted) {
    FailAll(absl::AbortedError(absl::StrCat(ServerName(chunk.server), ": ", outcome.message())),
            actions);
  } else if (IsRetryable(outcome)) {
    Retry(chunk, record, outcome, now);
  } else {
    Finish(record.op,
           absl::Status(outcome.code(),
                        absl::StrCat(TitleOf(op.request), " to ", ServerName(chunk.server), ": ",
                                     outcome.message())),
           actions);
  }
  NoteNeed(now, actions);
  Pump(now, actions);
  return true;
}

void PushPullSession::RecordReplies(const InFlight& message, Op& op,
                                    const std::vector<ShardReply>& replies) {
  for (size_t k = 0; k < replies.size(); ++k) {
    const auto index = static_cast<size_t>(message.shards[k]);
    const ShardReply& reply = replies[k];
    if (reply.outcome == ShardReply::Outcome::kNotReady) {
      op.shards[index] = ShardState::kTodo;
      continue;
    }
    op.shards[index] = ShardState::kDone;
    --op.undone;
    if (op.request.kind == OpKind::kPush) {
      per_shard_[index].unanswered.erase(op.sequences[index]);
      op.pushed_version = std::min(op.pushed_version.value_or(reply.version), reply.version);
      continue;
    }
    op.replies[index] = reply;
    if (reply.outcome == ShardReply::Outcome::kDone && !options_.pulls_have_own_arrays) {
      per_shard_[index].held_version = reply.version.value();
      per_shard_[index].held_of_snapshot = op.request.snapshot;
    }
  }
}

void PushPullSession::Retry(Chunk& chunk, const InFlight& message, const absl::Status& status,
                            Instant now) {
  Op& op = ops_.at(message.op);
  op.repeated = true;
  for (const int i : message.shards) op.shards[static_cast<size_t>(i)] = ShardState::kTodo;
  const bool refused = absl::IsFailedPrecondition(status);
  if (refused && message.generation < routing_.generation) return;  // Sent by an older table.
  chunk.last_error = status;
  // This is no sign of trouble: the acknowledgement waits for other workers.
  const bool slow = absl::IsDeadlineExceeded(status) && AwaitsIterations();
  if (!slow) chunk.trouble = refused ? Trouble::kKnowsNewerTable : Trouble::kAway;
  // Messages that fail together back off once.
  if (now < chunk.not_before && !refused) return;
  chunk.delay = chunk.delay == absl::ZeroDuration()
                    ? options_.retry_delay_min
                    : std::min(chunk.delay * 2, options_.retry_delay_max);
  chunk.not_before = now + (refused ? options_.retry_delay_stale : chunk.delay);
}

void PushPullSession::NoteNeed(Instant now, SessionActions* actions) {
  const auto in_trouble = [](const Chunk& chunk) { return chunk.trouble != Trouble::kNone; };
  const bool needed = !ops_.empty() && std::any_of(chunks_.begin(), chunks_.end(), in_trouble);
  if (needed == needs_routing()) return;
  ask_at_ = needed ? now + options_.ask_servers_after : Instant::InfiniteFuture();
  asked_ = 0;
  actions->need_routing = actions->need_routing || needed;
}

int PushPullSession::ServerToAsk() const {
  // Servers that know a newer table come first, then those without trouble, then all others.
  std::vector<std::pair<int, int>> order;  // (rank, server)
  for (size_t s = 0; s < routing_.servers.size(); ++s) order.emplace_back(1, static_cast<int>(s));
  for (const Chunk& chunk : chunks_) {
    int& rank = order[static_cast<size_t>(chunk.server)].first;
    if (chunk.trouble == Trouble::kKnowsNewerTable) rank = 0;
    if (chunk.trouble == Trouble::kAway && rank != 0) rank = 2;
  }
  std::sort(order.begin(), order.end());
  return order[static_cast<size_t>(asked_) % order.size()].second;
}

void PushPullSession::ForgetHeld(const SendMessage& message) {
  for (const SendMessage::Shard& shard : message.shards) {
    const auto route = std::lower_bound(
        routing_.shards.begin(), routing_.shards.end(), shard.key,
        [](const ShardRoute& each, const ShardKey& key) { return each.key < key; });
    if (route == routing_.shards.end() || route->key != shard.key) continue;
    per_shard_[static_cast<size_t>(route - routing_.shards.begin())].held_version = -1;
  }
}

void PushPullSession::CancelPull(OpId op, Instant now, SessionActions* actions) {
  const auto found = ops_.find(op);
  if (found == ops_.end() || found->second.request.kind != OpKind::kPull) return;
  ForgetMessages(op);
  ops_.erase(found);
  NoteNeed(now, actions);
  Pump(now, actions);
}

void PushPullSession::ForgetMessages(OpId op) {
  for (auto it = in_flight_.begin(); it != in_flight_.end();) {
    if (it->second.op != op) {
      ++it;
      continue;
    }
    Forget(it->second);
    it = in_flight_.erase(it);
  }
}

void PushPullSession::Forget(const InFlight& message) {
  Chunk& chunk = chunks_[static_cast<size_t>(message.chunk)];
  --(message.kind == OpKind::kPush ? chunk.pushes : chunk.pulls);
}

void PushPullSession::Finish(OpId id, const absl::Status& status, SessionActions* actions) {
  const Op& op = ops_.at(id);
  OpDone done{.op = id,
              .request = op.request,
              .started = op.started,
              .repeated = op.repeated,
              .reread = op.reread,
              .status = status,
              .pushed_version = op.pushed_version.value_or(Version(0))};
  bool past = false;
  for (size_t i = 0; i < op.replies.size(); ++i) {
    const ShardReply& reply = op.replies[i];
    if (op.shards[i] != ShardState::kDone) continue;
    if (reply.outcome == ShardReply::Outcome::kPast) {
      past = true;
      done.oldest = std::max(done.oldest, Iteration(reply.version.value()));
      continue;
    }
    done.staleness = std::max(done.staleness, reply.staleness);
    if (done.versions.empty()) done.membership = reply.membership;
    if (done.membership != reply.membership) done.membership = Generation(0);
    const auto [lowest, first] =
        done.versions.try_emplace(routing_.shards[i].key.table, reply.version);
    if (!first) lowest->second = std::min(lowest->second, reply.version);
  }
  if (past && status.ok()) done.status = absl::OutOfRangeError("the iteration is past");
  // No message of an ended push is sent again, so its sequences no longer hold the low-water mark.
  for (size_t i = 0; i < op.sequences.size(); ++i) per_shard_[i].unanswered.erase(op.sequences[i]);
  actions->done.push_back(std::move(done));
  ForgetMessages(id);
  ops_.erase(id);
}

void PushPullSession::FailAll(const absl::Status& status, SessionActions* actions) {
  failed_ = status;
  while (!ops_.empty()) Finish(ops_.begin()->first, status, actions);
}

void PushPullSession::Tick(Instant now, SessionActions* actions) {
  std::vector<OpId> late;
  for (const auto& [id, op] : ops_) {
    if (now >= DeadlineOf(op)) late.push_back(id);
  }
  for (const OpId id : late) {
    Finish(id, absl::DeadlineExceededError(TextOf(id, now)), actions);
  }
  if (now >= ask_at_) {
    actions->ask_routing.push_back(ServerToAsk());
    ++asked_;
    ask_at_ = now + options_.ask_servers_after;
  }
  if (now >= probe_at_) Probe(now, actions);
  Pump(now, actions);
}

Instant PushPullSession::NextDeadline() const {
  Instant next = Instant::InfiniteFuture();
  for (const auto& [id, op] : ops_) next = std::min(next, DeadlineOf(op));
  if (ops_.empty()) return next;
  next = std::min(next, ask_at_);
  if (!in_flight_.empty()) next = std::min(next, probe_at_);
  for (const Chunk& chunk : chunks_) {
    if (NextOpOf(chunk) != OpId(0)) next = std::min(next, chunk.not_before);
  }
  return next;
}

Instant PushPullSession::DeadlineOf(const Op& op) const {
  const Instant end = op.started + options_.wait_max;
  if (op.request.kind == OpKind::kPush && AwaitsIterations()) return end;
  return std::min(op.heard + options_.silence_max, end);
}

}  // namespace capstan::worker
