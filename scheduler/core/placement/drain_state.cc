#include "scheduler/core/placement/drain_state.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace capstan::scheduler {
namespace {

// Running jobs whose shards may be in the log on the node's disk alone.
std::vector<JobId> AwaitLogOf(const NodeId& node, const JobTable& jobs) {
  std::vector<JobId> waiting;
  for (const JobEntry* entry : jobs.Running()) {
    if (entry->run->parts().server_watch.AwaitsLogOf(node)) waiting.push_back(entry->plan.id);
  }
  return waiting;
}

// Says what happens to the node's shards.
void ExplainShards(const NodeId& node, const JobTable& jobs, std::vector<std::string>& what) {
  std::vector<JobId> moving;
  std::vector<JobId> stuck;
  for (const JobEntry* entry : jobs.Running()) {
    const ShardMap& shards = entry->run->parts().shards;
    if (shards.CopiesOn(node) == 0) continue;
    (shards.servers().CanMoveFrom(node) ? moving : stuck).push_back(entry->plan.id);
  }
  if (!moving.empty()) {
    what.push_back(absl::StrCat("its shards of ", absl::StrJoin(moving, ", "), " are being moved"));
  }
  if (!stuck.empty()) {
    what.push_back(
        absl::StrCat("there is no other server for its shards of ", absl::StrJoin(stuck, ", ")));
  }
}

}  // namespace

bool MayStop(const NodeId& node, const Membership& membership, const WorkerSlots& slots,
             const JobTable& jobs) {
  if (!AwaitLogOf(node, jobs).empty()) return false;
  const Node* found = membership.Find(node);
  if (found == nullptr || !found->alive) return true;
  return found->closing() && slots.Taken(node) == 0 && ShardsOn(jobs, node) == 0;
}

DrainReply DrainStateOf(const NodeId& node, const Membership& membership, const WorkerSlots& slots,
                        const JobTable& jobs) {
  DrainReply reply{.safe_to_stop = MayStop(node, membership, slots, jobs)};
  reply.shards = ShardsOn(jobs, node);
  reply.tasks = slots.Taken(node);
  if (reply.safe_to_stop) return reply;
  const Node* found = membership.Find(node);
  if (found != nullptr && found->alive && !found->closing()) {
    reply.detail = absl::StrCat(node, " is in use");
    return reply;
  }
  std::vector<std::string> what;
  if (const std::vector<JobId> waiting = AwaitLogOf(node, jobs); !waiting.empty()) {
    what.push_back(absl::StrCat(absl::StrJoin(waiting, ", "), " waits for the log on its disk"));
  }
  ExplainShards(node, jobs, what);
  if (reply.tasks > 0 && slots.Desired(node).empty()) {
    what.push_back(absl::StrCat(reply.tasks, " tasks are ending"));
  } else if (reply.tasks > 0) {
    what.push_back(absl::StrCat("there is no other slot for its ", reply.tasks, " tasks"));
  }
  reply.detail = absl::StrJoin(what, "; ");
  return reply;
}

}  // namespace capstan::scheduler
