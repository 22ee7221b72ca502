// JobRun: dead links between live processes. A task reports that a server does not answer it.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/planted/planted_bug.h"
#include "scheduler/core/job_run.h"

namespace capstan::scheduler {

void JobRun::CheckLinks(Instant now, Events& events) {
  if (IsModelWhole()) return;
  links_.Expire(now);
  for (const DeadLinks::Silence& silence : links_.Overdue(now)) {
    if (!links_.IsSilent(silence.rank, silence.link.server)) continue;  // The silence has ended.
    if (Planted(PlantedBug::kTrustEveryLink) ||
        !shards_.Primaries().contains(silence.link.server)) {
      // The server's shards are lost, or move to other servers.
      links_.Excuse(silence.rank, silence.link.server, now);
    } else {
      LeaveDeadLink(silence, now, events);
    }
  }
  shards_.SetAvoided(links_.AvoidedServers());
}

bool JobRun::IsReached(const DeadLinks::Link& link) const {
  const std::vector<Rank> live = tasks_.Live();
  return std::any_of(live.begin(), live.end(), [&](Rank rank) {
    return tasks_.at(rank).node != link.worker && !links_.IsSilent(rank, link.server);
  });
}

void JobRun::LeaveDeadLink(const DeadLinks::Silence& silence, Instant now, Events& events) {
  using Avoid = DeadLinks::Avoid;
  const auto& [worker, server] = silence.link;
  shards_.SetAvoided(links_.AvoidedServers());
  if (!shards_.servers().HasAnother(server) && links_.ForgetAvoidedServers()) {
    shards_.SetAvoided(links_.AvoidedServers());
  }
  const bool reached = IsReached(silence.link);
  const auto before = links_.JudgementOf(silence.link);
  // In BSP without replicas or a log, only the server itself has the pushes of an incomplete
  // iteration. Its shards cannot leave before the rest of these pushes arrives. So the task first
  // moves to another worker, as soon as one has a free slot.
  const bool waits_for_pushes =
      plan_.consistency.synchronous() && plan_.replicas == 0 && !plan_.log;
  const bool shards_move =
      !reached && shards_.servers().HasAnother(server) && (before || !waits_for_pushes);
  const bool on_their_way = before == Avoid::kServer || (before == Avoid::kBoth && !reached);
  // Nothing can be done if shards or task are moving already, or if the task is back from another
  // worker and the shards cannot move.
  if (on_their_way || (before && !reached && !shards_move)) {
    return links_.Excuse(silence.rank, server, now);
  }
  if (!before || shards_move) {
    const Avoid leaving = waits_for_pushes ? Avoid::kBoth : Avoid::kServer;
    links_.Judge(silence.link, shards_move ? leaving : Avoid::kWorker, now);
    events.push_back(LinkDied{plan_.id, worker, server, shards_move});
    ++revision_;
  }
  if (shards_move) return links_.Excuse(silence.rank, server, now);
  const std::string why =
      absl::StrCat("it cannot reach ", server, reached ? ", which other tasks reach" : "");
  EndTask(silence.rank, {FailureReason::kNone, why}, /*counted=*/false, now, events);
}

}  // namespace capstan::scheduler
