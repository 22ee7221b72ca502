// WaitingCalls: the calls of users that wait for news. SchedulerCore answers each of them once:
// when there is news, or when its time is over.
//
// One table holds calls of every kind. A new kind is a struct in Awaited, and an overload of
// SchedulerCore::Answerer that finds its answer.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SCHEDULER_CORE_WAITING_CALLS_H_
#define CAPSTAN_SCHEDULER_CORE_WAITING_CALLS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "scheduler/core/messages/messages.h"

namespace capstan::scheduler {

// The job has a revision above this one, or is forgotten.
struct JobNews {
  static constexpr char kWhat[] = "news of jobs";
  JobId job;
  uint64_t after_revision = 0;
};
// This checkpoint or a later one is complete or given up.
struct CheckpointNews {
  static constexpr char kWhat[] = "checkpoints";
  JobId job;
  CheckpointId asked;
};
// This snapshot or a later one is taken or given up.
struct SnapshotNews {
  static constexpr char kWhat[] = "snapshots";
  JobId job;
  CheckpointId asked;
};
// The node may be stopped.
struct DrainNews {
  static constexpr char kWhat[] = "nodes to be drained";
  NodeId node;
};

class WaitingCalls {
 public:
  using Awaited = std::variant<JobNews, CheckpointNews, SnapshotNews, DrainNews>;

  // At most `kind_max` calls of each kind are held.
  explicit WaitingCalls(size_t kind_max) : kind_max_(kind_max) {}

  // Errors: kResourceExhausted  no more calls of this kind can be held.
  template <typename News>
  absl::Status CheckRoom() const {
    const auto held = std::count_if(calls_.begin(), calls_.end(), [](const Call& call) {
      return std::holds_alternative<News>(call.awaited);
    });
    if (static_cast<size_t>(held) < kind_max_) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat(held, " calls wait for ", News::kWhat, " already; ask again later"));
  }

  void Hold(Ticket ticket, Awaited awaited, Instant until) {
    calls_.push_back({ticket, std::move(awaited), until});
  }

  // Calls `answer(awaited, is_late)` for each call; `is_late`: its time is over. A call for which
  // that returns a reply is removed, and its reply is appended to `replies`.
  template <typename Answer>
  void AnswerEach(Instant now, const Answer& answer, std::vector<Reply>& replies) {
    std::erase_if(calls_, [&](const Call& call) {
      std::optional<Reply> reply = std::visit(
          [&](const auto& awaited) -> std::optional<Reply> {
            auto found = answer(awaited, now >= call.until);
            if (!found) return std::nullopt;
            found->ticket = call.ticket;
            return *std::move(found);
          },
          call.awaited);
      if (!reply) return false;
      replies.push_back(*std::move(reply));
      return true;
    });
  }

  Instant NextDeadline() const {
    Instant next = Instant::InfiniteFuture();
    for (const Call& call : calls_) next = std::min(next, call.until);
    return next;
  }

 private:
  struct Call {
    Ticket ticket;
    Awaited awaited;
    Instant until;
  };

  size_t kind_max_;
  std::vector<Call> calls_;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_WAITING_CALLS_H_
