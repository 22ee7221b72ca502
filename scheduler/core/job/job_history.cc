#include "scheduler/core/job/job_history.h"

#include <type_traits>
#include <utility>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/time/duration_text.h"

namespace capstan::scheduler {
namespace {

// Nodes report a disk failure as text that contains the message of the C library.
bool SaysDiskFull(const std::string& why) {
  const std::string words = absl::AsciiStrToLower(why);
  return absl::StrContains(words, "no space left") || absl::StrContains(words, "quota exceeded");
}

JobEventKind KindOr(JobEventKind kind, const std::string& why) {
  return SaysDiskFull(why) ? JobEventKind::kDiskFull : kind;
}

std::string Shards(int count) { return absl::StrCat(count, count == 1 ? " shard" : " shards"); }

void Notice(const ServerLost& e, std::vector<JobEvent>& out) {
  out.push_back({JobEventKind::kServerLost, e.node, absl::StrCat("it died: ", e.why), {}, {}});
}

void Notice(const ServerFailed& e, std::vector<JobEvent>& out) {
  out.push_back({KindOr(JobEventKind::kServerLost, e.why),
                 e.node,
                 absl::StrCat("it holds nothing of the job any more: ", e.why),
                 {},
                 {}});
}

void Notice(const ServerReturned& e, std::vector<JobEvent>& out) {
  out.push_back({JobEventKind::kServerJoined, e.node, "it is back", {}, {}});
}

void Notice(const JobAdopted& e, std::vector<JobEvent>& out) {
  out.push_back(
      {JobEventKind::kRecovered,
       {},
       absl::StrCat("taken up from its logs, as a job of cluster ", e.cluster,
                    "; where it stood was recorded ", DurationText(e.record_age), " before"),
       {},
       {}});
}

void Notice(const TrainedTwice& e, std::vector<JobEvent>& out) {
  out.push_back({JobEventKind::kRecovered,
                 {},
                 absl::StrCat("at most ", e.batches_max, " batches that the model has already are ",
                              "trained once more: they came after the record"),
                 {},
                 {}});
}

void Notice(const RoutingChanged& e, std::vector<JobEvent>& out) {
  for (const PrimaryMove& move : e.moves) {
    const bool back = move.from == move.to;
    const std::string text = back ? absl::StrCat(Shards(move.shards), " are held again")
                                  : absl::StrCat("it is the primary of ", Shards(move.shards),
                                                 " of ", move.from, " now");
    out.push_back({move.from_lives && !back ? JobEventKind::kShardsMoved : JobEventKind::kFailover,
                   move.to,
                   text,
                   {},
                   {}});
  }
  if (e.degraded > e.degraded_before) {
    out.push_back({JobEventKind::kDegraded,
                   {},
                   absl::StrCat(e.degraded, " of ", Shards(e.shards), " without ",
                                e.replicas == 1 ? "a replica"
                                                : absl::StrCat("their ", e.replicas, " replicas")),
                   {},
                   {}});
  }
  if (e.degraded == 0 && e.degraded_before > 0) {
    out.push_back({JobEventKind::kReplicated, {}, "all shards have their replicas again", {}, {}});
  }
}

void Notice(const TaskDied& e, std::vector<JobEvent>& out) {
  if (!e.failure.happened()) return;
  out.push_back({JobEventKind::kTaskDied,
                 e.node,
                 absl::StrCat("task ", e.task.rank.value(), " died: ", e.failure.message),
                 {},
                 {}});
}

void Notice(const TaskPlaced& e, std::vector<JobEvent>& out) {
  if (!e.restart) return;
  out.push_back({JobEventKind::kTaskRestarted,
                 e.node,
                 absl::StrCat("task ", e.task.rank.value(), " starts again"),
                 {},
                 {}});
}

void Notice(const LinkDied& e, std::vector<JobEvent>& out) {
  out.push_back({JobEventKind::kLinkDied,
                 e.worker,
                 absl::StrCat("it cannot reach ", e.server, ", and both live: ",
                              e.shards_move ? "the shards move to other servers"
                                            : "the task leaves that worker"),
                 {},
                 {}});
}

void Notice(const CheckpointEnded& e, std::vector<JobEvent>& out) {
  if (e.why.empty()) return;
  out.push_back({KindOr(JobEventKind::kCheckpointFailed, e.why),
                 e.node,
                 absl::StrCat("no checkpoint ", e.folder, ": ", e.why),
                 {},
                 {}});
}

void Notice(const WentBack& e, std::vector<JobEvent>& out) {
  if (e.best) return;  // The return to the best epoch is no failure.
  out.push_back({JobEventKind::kWentBack,
                 {},
                 absl::StrCat("goes back to ", e.folder.empty() ? "its beginning" : e.folder),
                 {},
                 {}});
}

void Notice(const ModelKept& e, std::vector<JobEvent>& out) {
  out.push_back({JobEventKind::kModelKept,
                 {},
                 absl::StrCat("the model cannot be written; the servers keep it: ", e.why),
                 {},
                 {}});
}

}  // namespace

const JobId* JobOf(const Event& event) {
  return std::visit(
      [](const auto& e) -> const JobId* {
        using E = std::decay_t<decltype(e)>;
        if constexpr (std::is_same_v<E, NodeJoined> || std::is_same_v<E, NodeDied> ||
                      std::is_same_v<E, SchedulerStalled> || std::is_same_v<E, SchedulerIsolated> ||
                      std::is_same_v<E, IsolationEnded>) {
          return nullptr;
        } else if constexpr (std::is_same_v<E, TaskPlaced> || std::is_same_v<E, TaskDied> ||
                             std::is_same_v<E, ModelLeftToTask> ||
                             std::is_same_v<E, UpdatesRecorded>) {
          return &e.task.job;
        } else {
          return &e.job;
        }
      },
      event);
}

std::vector<JobEvent> NotableIn(const Event& event) {
  std::vector<JobEvent> notable;
  std::visit(
      [&notable](const auto& e) {
        if constexpr (requires { Notice(e, notable); }) Notice(e, notable);
      },
      event);
  return notable;
}

bool JobHistory::Add(JobEvent event, Instant now) {
  if (event.kind == JobEventKind::kReplicated && !degraded_) return false;
  if (event.kind == JobEventKind::kDegraded) degraded_ = true;
  if (event.kind == JobEventKind::kReplicated) degraded_ = false;
  if (event.text.size() > kTextBytesMax) {
    event.text.resize(kTextBytesMax - 3);
    event.text += "...";
  }
  event.first = event.last = now;
  event.count = 1;
  if (!events_.empty()) {
    JobEvent& newest = events_.back();
    if (newest.kind == event.kind && newest.node == event.node && newest.text == event.text) {
      newest.last = now;
      ++newest.count;
      return true;
    }
  }
  events_.push_back(std::move(event));
  if (events_.size() > kEventsMax) {
    events_.erase(events_.begin());
    ++forgotten_;
  }
  return true;
}

}  // namespace capstan::scheduler
