// SchedulerCore: nodes whose connection breaks, and nodes that are drained.
#include "common/status/status_macros.h"
#include "scheduler/core/messages/plugin_rules.h"
#include "scheduler/core/scheduler_core.h"

namespace capstan::scheduler {

void SchedulerCore::OnSyncBroken(const NodeId& node, Incarnation incarnation, Instant now,
                                 Actions& actions) {
  NoteStall(now, actions);
  const Node* found = membership_.Find(node);
  if (found == nullptr || !found->alive || found->incarnation != incarnation) return;
  desired_.AnswerNode(node, actions.replies);
  membership_.Broken(node, incarnation, now);
}

// A late timer means that this process did not run. Then this process caused the silence and the
// cut calls, so no node is dead because of them.
void SchedulerCore::NoteStall(Instant now, Actions& actions) {
  if (now < due_ || now - due_ < options_.read_lease) return;
  actions.events.push_back(SchedulerStalled{now - due_});
  // The connections stayed open, so nodes need no time to come back.
  membership_.Restored(now, absl::ZeroDuration());
  for (JobEntry* entry : jobs_.Running()) entry->run->Restored(now, absl::ZeroDuration());
  due_ = NextDeadline();
}

// ---------------------------------------------------------------- drain

absl::Status SchedulerCore::DrainNode(Ticket ticket, const NodeId& node, bool cancel,
                                      absl::Duration limit, Instant now, Actions& actions) {
  CAPSTAN_RETURN_IF_ERROR(waiting_.CheckRoom<DrainNews>());
  CAPSTAN_RETURN_IF_ERROR(membership_.SetDraining(node, !cancel));
  NoteClosing(*membership_.Find(node), now, actions);
  waiting_.Hold(ticket, DrainNews{node}, cancel ? now : now + limit);
  Settle(now, actions);
  return absl::OkStatus();
}

// Applies that the node began to close, or is in use again.
void SchedulerCore::NoteClosing(const Node& node, Instant now, Actions& actions) {
  nodes_changed_ = true;
  if (!node.alive) return;
  if (node.info.role == Role::kWorker) {
    return node.closing() ? placer_.slots().CloseNode(node.id) : placer_.slots().OpenNode(node.id);
  }
  const ServerRef server{node.id, node.info.address, node.incarnation};
  for (JobEntry* entry : jobs_.Running()) {
    if (!HasRules(node.info.plugin_rules, entry->plan.plugin_rules)) continue;
    entry->run->OnServerDraining(server, node.closing(), now, actions.events);
  }
}

}  // namespace capstan::scheduler
