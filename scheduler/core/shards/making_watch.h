// MakingWatch: tracks which shards each server makes for a job, and when it last made progress.
//
// Making shards may take long, and a server that makes progress is not late. Called by JobMembers
// and ServerWatch. Thread safety: thread-compatible.
#ifndef CAPSTAN_SCHEDULER_CORE_SHARDS_MAKING_WATCH_H_
#define CAPSTAN_SCHEDULER_CORE_SHARDS_MAKING_WATCH_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "scheduler/core/messages/messages.h"

namespace capstan::scheduler {

class MakingWatch {
 public:
  // `making`: the shards that the server makes; nullopt: none. A server that makes progress has its
  // whole time again. Returns whether `making` is new.
  bool Note(const NodeId& server, const std::optional<Making>& making, Instant now) {
    Work& work = work_[server];
    if (making && making->progress > work.progress) {
      work.progress = making->progress;
      work.since = now;
    }
    const bool seen = making == work.making;
    work.making = making;
    return !seen;
  }
  void Forget(const NodeId& server) { work_.erase(server); }
  void Clear() { work_.clear(); }

  std::optional<Making> Of(const NodeId& server) const {
    const auto it = work_.find(server);
    return it == work_.end() ? std::nullopt : it->second.making;
  }
  // " (3 of 8 shards are made)", or nothing.
  std::string Describe(const NodeId& server) const {
    const std::optional<Making> making = Of(server);
    if (!making || making->total == 0) return "";
    return absl::StrCat(" (", making->made, " of ", making->total, " shards are made)");
  }
  // The later of `asked`, when the server was asked for something, and of its last progress.
  Instant StandsSince(const NodeId& server, Instant asked) const {
    const auto it = work_.find(server);
    return it == work_.end() ? asked : std::max(asked, it->second.since);
  }

 private:
  struct Work {
    std::optional<Making> making;
    uint64_t progress = 0;
    Instant since;  // When `progress` grew last.
  };

  std::map<NodeId, Work> work_;  // Keyed by server. Reported often, so not durable.
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_SHARDS_MAKING_WATCH_H_
