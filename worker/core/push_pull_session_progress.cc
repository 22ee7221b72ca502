// PushPullSession's reports about operations that have not ended.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/core/push_pull_session.h"

namespace capstan::worker {

const char* VerbOf(OpKind kind) { return kind == OpKind::kPush ? "push" : "pull"; }

PullProgress PushPullSession::ProgressOf(OpId id, TableId table) const {
  const auto found = ops_.find(id);
  if (found == ops_.end()) return {};
  const Op& op = found->second;
  PullProgress progress{.reread = op.reread};
  for (size_t i = 0; i < op.replies.size(); ++i) {
    const ShardRoute& shard = routing_.shards[i];
    if (shard.key.table != table) continue;
    if (op.shards[i] != ShardState::kDone) break;
    if (op.replies[i].outcome != ShardReply::Outcome::kDone) break;
    progress.arrived_end = shard.elements.end;
  }
  return progress;
}

absl::Status PushPullSession::TooLong(const Op& op, Instant now) const {
  const auto shard = std::find_if(op.shards.begin(), op.shards.end(),
                                  [](ShardState s) { return s != ShardState::kDone; });
  const auto index = static_cast<size_t>(shard - op.shards.begin());
  std::string message = absl::StrCat(
      VerbOf(op.request.kind), " of iteration ", op.request.iteration.value(), " has waited ",
      absl::FormatDuration(now - op.started), " for ", ServerName(routing_.shards[index].server));
  for (const Waiting& w : op.waiting_on) {
    absl::StrAppend(&message, "; table ", w.shard.table.value(), " shard ", w.shard.shard.value(),
                    " waits for iteration ", w.iteration.value());
    if (!w.ranks.empty()) absl::StrAppend(&message, " of workers ", absl::StrJoin(w.ranks, ", "));
    if (!w.slots.empty()) absl::StrAppend(&message, " of slots ", absl::StrJoin(w.slots, ", "));
  }
  for (const Chunk& chunk : chunks_) {
    if (chunk.last_error.ok() || chunk.delay == absl::ZeroDuration()) continue;
    absl::StrAppend(&message, "; last error of ", ServerName(chunk.server), ": ",
                    chunk.last_error.message());
  }
  return absl::DeadlineExceededError(message);
}

SessionWait PushPullSession::CurrentWait(Instant now) const {
  if (ops_.empty()) return {};
  // Reports the oldest operation that knows for whom it waits, or else the oldest.
  const auto knows = std::find_if(
      ops_.begin(), ops_.end(), [](const auto& entry) { return !entry.second.waiting_on.empty(); });
  const Op& op = knows == ops_.end() ? ops_.begin()->second : knows->second;
  SessionWait wait{.waiting = true,
                   .request = op.request,
                   .since = op.started,
                   .peer = {},
                   .waiting_on = op.waiting_on,
                   .silent = SilentServers(now)};
  for (size_t i = 0; i < op.shards.size(); ++i) {
    if (op.shards[i] == ShardState::kDone) continue;
    wait.peer = ServerName(routing_.shards[i].server);
    break;
  }
  return wait;
}

std::string PushPullSession::ServerName(int server) const {
  const auto index = static_cast<size_t>(server);
  if (index >= routing_.addresses.size()) return routing_.servers[index];
  return absl::StrCat(routing_.servers[index], " (", routing_.addresses[index], ")");
}

}  // namespace capstan::worker
