// FakeCluster: the fake servers' reports on replicas, the work of servers and shell on checkpoints,
// and the checks of checkpoints.
#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "scheduler/core/testing/fake_cluster.h"

namespace capstan::scheduler::testing {

bool FakeCluster::IsPrimary(const FakeNode& node, const JobId& job) const {
  const auto table = core_->jobs().RoutingOf(job);
  return table.ok() && std::any_of((*table)->shards.begin(), (*table)->shards.end(),
                                   [&](const ShardRoute& route) {
                                     const size_t index = static_cast<size_t>(route.server);
                                     const ServerRef& server = (*table)->servers[index];
                                     return server.incarnation == node.incarnation;
                                   });
}

std::vector<ReplicaReport> FakeCluster::FilledReplicas(const FakeNode& node,
                                                       const FakeTables& tables) {
  const Routing& routing = *tables.routing;
  std::vector<ReplicaReport> filled;
  for (const ShardRoute& route : routing.shards) {
    if (routing.servers[static_cast<size_t>(route.server)].incarnation != node.incarnation)
      continue;
    for (const ReplicaRef& replica : route.replicas) {
      const ServerRef& server = routing.servers[static_cast<size_t>(replica.server)];
      filled.push_back(
          {route.key, route.term, server.node, server.incarnation, ReplicaReport::State::kFilled});
    }
  }
  return filled;
}

void FakeCluster::AskCheckpoint(const JobId& job) {
  if (away_until_) return;
  Actions actions;
  const Ticket ticket(next_ticket_++);
  core_->SaveCheckpoint(ticket, job, std::nullopt, absl::ZeroDuration(), now_, actions)
      .IgnoreError();
  Perform(actions);
}

absl::StatusOr<CheckpointId> FakeCluster::SaveAndStop(const JobId& job) {
  Actions actions;
  absl::StatusOr<CheckpointId> asked = core_->SaveAndStopJob(job, now_, actions);
  Perform(actions);
  return asked;
}

void FakeCluster::AskSnapshot(const JobId& job, uint64_t reader, absl::Duration limit) {
  if (away_until_) return;
  Actions actions;
  const Ticket ticket(next_ticket_++);
  core_->OpenSnapshot(ticket, job, reader, limit, now_, actions).IgnoreError();
  Perform(actions);
}

void FakeCluster::Damage(const std::string& folder, FailureReason reason) {
  damaged_[folder] = reason;
}

void FakeCluster::Save(const JobId& job, absl::Duration limit) {
  Actions actions;
  const Ticket ticket(next_ticket_++);
  if (!core_->SaveCheckpoint(ticket, job, std::nullopt, limit, now_, actions).ok()) Fail("refused");
  Perform(actions);
}

std::vector<CheckpointPart> FakeCluster::PartsOf(const FakeNode& node, const FakeTables& tables) {
  std::vector<CheckpointPart> parts;
  const JobLedger& ledger = jobs_.at(tables.routing->job);
  const Routing& routing = *tables.routing;
  for (const ShardRoute& route : routing.shards) {
    if (routing.servers[static_cast<size_t>(route.server)].node != node.name) continue;
    parts.push_back({.shard = route.key, .elements = route.elements});
    parts.back().version = Version(ledger.version);
    if (dice_.Chance(0.8)) parts.back().base = tables.order.base;  // If not, the part is complete.
    parts.back().bytes = parts.back().base == CheckpointId(0) ? 1000 : 100;
    parts.back().file = absl::StrCat("table-", route.key.table.value(), "-shard-",
                                     route.key.shard.value(), ".part");
  }
  return parts;
}

// Captures and writes the ordered checkpoints, some time after the order.
void FakeCluster::TakeCheckpoints(FakeNode& node) {
  for (auto& [job, tables] : node.tables) {
    if (tables.order.id == CheckpointId(0)) continue;
    if (!tables.checkpoint && now_ >= tables.capture_at) {
      tables.checkpoint = CheckpointReport{.id = tables.order.id};
      if (dice_.Chance(options_.checkpoint_fails)) {
        tables.checkpoint->state = CheckpointReport::State::kFailed;
        tables.checkpoint->error = "disk full";
      }
      const bool keeps = !tables.order.readers.empty();
      if (keeps && dice_.Chance(options_.snapshot_fails)) tables.checkpoint->not_kept = "no room";
      tables.checkpoint->parts = PartsOf(node, tables);
      JobLedger& ledger = jobs_.at(job);
      if (!tables.checkpoint->parts.empty()) {
        ledger.pushes_captured[tables.order.id].insert(ledger.pushes);
      }
      tables.written_at = now_ + absl::Milliseconds(dice_.Below(400));
    }
    if (tables.checkpoint && tables.checkpoint->state == CheckpointReport::State::kCaptured &&
        !tables.order.folder.empty() && now_ >= tables.written_at) {
      tables.checkpoint->state = CheckpointReport::State::kWritten;
    }
  }
}

void FakeCluster::PublishDue() {
  for (size_t i = 0; i < publishes_.size();) {
    if (publishes_[i].done > now_) {
      ++i;
      continue;
    }
    const CheckpointPublish publish = std::move(publishes_[i].what);
    publishes_.erase(publishes_.begin() + static_cast<std::ptrdiff_t>(i));
    Actions actions;
    const absl::Status status = dice_.Chance(options_.checkpoint_fails)
                                    ? absl::ResourceExhaustedError("disk full")
                                    : absl::OkStatus();
    // An abandoned checkpoint may be captured late, but a published one may not.
    if (jobs_.at(publish.job).pushes_captured[publish.id].size() > 1) {
      Fail(absl::StrCat(publish.job, ": a push between two captures of checkpoint ",
                        publish.id.value()));
    }
    // A checkpoint that is published twice (after a death of the scheduler) counts once.
    auto& complete = jobs_.at(publish.job).complete;
    if (status.ok() && (complete.empty() || complete.back().id != publish.id)) {
      complete.push_back(publish);
    }
    core_->CheckpointPublished(publish.job, publish.id, status, now_, actions);
    if (!Perform(actions)) return;
  }
}

// Moves the models that tasks have staged to their places.
void FakeCluster::MoveDue() {
  while (!moves_.empty() && moves_.front().done <= now_) {
    const ModelPublish model = std::move(moves_.front().what);
    moves_.erase(moves_.begin());
    if (!core_->jobs().AwaitsModel(model.exporter)) continue;
    const bool fails = options_.checkpoint_fails > 0 && dice_.Chance(options_.checkpoint_fails);
    const absl::Status status = fails ? absl::NotFoundError("no such file") : absl::OkStatus();
    Actions actions;
    core_->ModelPublished(model.exporter, status, now_, actions);
    if (!Perform(actions)) return;
  }
}

// Removes the checkpoints that may not stay. Checks that the bases of the others stay, too.
void FakeCluster::KeepStaying(const JobId& job) {
  JobLedger& ledger = jobs_.at(job);
  const CheckpointRemoval removal = core_->jobs().CheckpointsToRemove(job);
  if (removal.staying.empty()) return;
  const auto stays = [&removal](CheckpointId id) {
    const auto& staying = removal.staying;
    return id > staying.back() || std::find(staying.begin(), staying.end(), id) != staying.end();
  };
  for (const CheckpointPublish& one : ledger.complete) {
    if (!stays(one.id)) ledger.gone.insert(one.id);
    for (const CheckpointPart& part : one.parts) {
      if (!stays(one.id) || part.base == CheckpointId(0) || stays(part.base)) continue;
      Fail(absl::StrCat(job, " checkpoint ", one.id.value(), " stays, its base ", part.base.value(),
                        " goes"));
    }
  }
}

void FakeCluster::NoteSnapshot(const SnapshotTaken& taken) {
  if (!taken.why.empty()) return;
  const size_t moments = jobs_.at(taken.job).pushes_captured[taken.id].size();
  if (moments > 1) {
    Fail(absl::StrCat(taken.job, ": a push between two captures of snapshot ", taken.id.value()));
  }
}

void FakeCluster::NoteCheckpoint(const CheckpointEnded& ended) {
  if (absl::StrContains(ended.why, "version") || absl::StrContains(ended.why, "no part")) {
    Fail(absl::StrCat(ended.job, " checkpoint ", ended.id.value(), ": ", ended.why));
  }
}

// Records the point of the job when a server restores its shards from a checkpoint or initializes
// them.
void FakeCluster::NoteRestore(const TableAssignment& assignment) {
  if (damaged_.contains(assignment.restore.restore_folder)) return;
  JobLedger& ledger = jobs_.at(assignment.routing->job);
  const Term term = assignment.restore.restore_term;
  if (term <= ledger.restored_term) return;
  ledger.restored_term = term;
  const auto found = std::find_if(ledger.complete.begin(), ledger.complete.end(),
                                  [&](const CheckpointPublish& publish) {
                                    return publish.folder == assignment.restore.restore_folder;
                                  });
  if (assignment.restore.restore_folder.empty()) {
    if (ledger.version > 0)
      return Fail(absl::StrCat(ledger.plan.id, " begins anew: it has trained"));
    ledger.begins_at.reset();
  } else if (found != ledger.complete.end()) {
    if (ledger.gone.contains(found->id)) Fail(absl::StrCat(found->folder, " is gone"));
    ledger.begins_at = RestoreFrom{found->folder, found->at};
  } else if (!ledger.begins_at || ledger.begins_at->folder != assignment.restore.restore_folder) {
    return Fail(absl::StrCat(ledger.plan.id, " is restored from ",
                             assignment.restore.restore_folder, ", which is not complete"));
  }
  ledger.resumed = ledger.begins_at ? ledger.begins_at->at : ResumePoint();
  ledger.version = ledger.resumed.iteration.value();
  ledger.slots_done.clear();
  ledger.leases.clear();
}

}  // namespace capstan::scheduler::testing
