// PushPullSession's reports about operations that have not ended.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/core/push_pull_session.h"

namespace capstan::worker {

const char* VerbOf(OpKind kind) { return kind == OpKind::kPush ? "push" : "pull"; }

std::string TitleOf(const OpRequest& request) {
  std::string text =
      absl::StrCat(VerbOf(request.kind), " of iteration ", request.iteration.value());
  if (request.table) absl::StrAppend(&text, " of table ", request.table->value());
  return text;
}

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

int PushPullSession::FirstUndone(const Op& op) const {
  const auto shard = std::find_if(op.shards.begin(), op.shards.end(), [](ShardState state) {
    return state != ShardState::kDone && state != ShardState::kNone;
  });
  return static_cast<int>(shard - op.shards.begin());
}

std::string PushPullSession::TextOf(const Op& op, Instant now) const {
  const auto index = static_cast<size_t>(FirstUndone(op));
  std::string message =
      absl::StrCat(TitleOf(op.request), " has waited ", absl::FormatDuration(now - op.started),
                   " for ", ServerName(routing_.shards[index].server));
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
  return message;
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
  const auto undone = static_cast<size_t>(FirstUndone(op));
  if (undone < op.shards.size()) wait.peer = ServerName(routing_.shards[undone].server);
  return wait;
}

std::string PushPullSession::ServerName(int server) const {
  const auto index = static_cast<size_t>(server);
  if (index >= routing_.addresses.size()) return routing_.servers[index];
  return absl::StrCat(routing_.servers[index], " (", routing_.addresses[index], ")");
}

}  // namespace capstan::worker
