#include "scheduler/codec/task_codec.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/metrics/score_counts.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/types/job_limits.h"
#include "common/wire/store_revision_codec.h"
#include "scheduler/codec/shared_codec.h"

namespace capstan::scheduler {
namespace {

constexpr int kWaitingOnMax = 64;
constexpr int kWaitedListMax = 4096;
constexpr size_t kTextBytesMax = 256;

Wait DecodeWait(const v1::Wait& wait) {
  Wait decoded{.what = Cut(wait.what(), kTextBytesMax),
               .iteration = Iteration(wait.iteration()),
               .waited = absl::Milliseconds(wait.waited_ms()),
               .peer = Cut(wait.peer(), kTextBytesMax),
               .waiting_on = {}};
  for (int i = 0; i < std::min(wait.waiting_on_size(), kWaitingOnMax); ++i) {
    const v1::WaitingOn& waiting = wait.waiting_on(i);
    WaitingOn entry{.table = waiting.table(),
                    .shard = waiting.shard(),
                    .iteration = Iteration(waiting.iteration()),
                    .ranks = {},
                    .slots = {}};
    for (int r = 0; r < std::min(waiting.ranks_size(), kWaitedListMax); ++r) {
      entry.ranks.push_back(Rank(waiting.ranks(r)));
    }
    for (int s = 0; s < std::min(waiting.slots_size(), kWaitedListMax); ++s) {
      entry.slots.push_back(SlotId(waiting.slots(s)));
    }
    decoded.waiting_on.push_back(std::move(entry));
  }
  for (int i = 0; i < std::min(wait.silent_size(), kWaitedListMax); ++i) {
    decoded.silent.push_back(Cut(wait.silent(i), kTextBytesMax));
  }
  return decoded;
}

absl::Status DecodeScores(const v1::ScoreCounts& scores, ScoreCounts& decoded) {
  const int bins = scores.bin_steps_size();
  if (bins != scores.non_clicks_size() || bins != scores.clicks_size()) {
    return absl::InvalidArgumentError(absl::StrCat(bins, " bin_steps, ", scores.non_clicks_size(),
                                                   " non_clicks and ", scores.clicks_size(),
                                                   " clicks, expected as many of each"));
  }
  int64_t bin = 0;
  for (int i = 0; i < bins; ++i) {
    bin += scores.bin_steps(i);
    CAPSTAN_RETURN_IF_ERROR(
        decoded.Append(bin, {.non_clicks = scores.non_clicks(i), .clicks = scores.clicks(i)}));
  }
  return absl::OkStatus();
}

absl::StatusOr<SampleReport> DecodeSample(const v1::SampleProgress& sample) {
  SampleReport report{.lease = LeaseId(sample.lease_id()),
                      .position_done = sample.position_done(),
                      .loss_sum = sample.loss_sum(),
                      .correct = sample.correct()};
  const std::string lease = absl::StrCat("progress.samples: lease ", sample.lease_id());
  const absl::Status status = DecodeScores(sample.scores(), report.scores);
  if (!status.ok()) return Annotate(status, absl::StrCat(lease, ": scores"));
  const v1::OutputSums& outputs = sample.outputs();
  report.outputs = {.values = outputs.values(),
                    .squared_errors = outputs.squared_errors(),
                    .absolute_errors = outputs.absolute_errors(),
                    .among_five = outputs.among_five(),
                    .predicted = outputs.predicted(),
                    .positives = outputs.positives(),
                    .hits = outputs.hits()};
  if (report.outputs.IsPossible()) return report;
  return absl::InvalidArgumentError(
      absl::StrCat(lease, ": outputs: ", outputs.ShortDebugString(),
                   ": expected finite sums, counts >= 0, and no part above the whole"));
}

absl::StatusOr<std::vector<UpdateHashes>> DecodeUpdates(const v1::SyncTaskRequest& request) {
  std::vector<UpdateHashes> decoded;
  int tables = 0;
  for (const v1::UpdateHashes& update : request.updates()) {
    tables += update.tables_size();
    if (tables > kTablesReportedMax || update.tables_size() == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("updates: iteration ", update.iteration(), " has ", update.tables_size(),
                       " tables, expected one at least and ", kTablesReportedMax,
                       " at most, with those of the updates before it"));
    }
    UpdateHashes& record = decoded.emplace_back(
        UpdateHashes{.iteration = Iteration(update.iteration()),
                     .epoch = Epoch(update.epoch()),
                     .slot = SlotId(update.slot()),
                     .positions = {.begin = update.begin(), .end = update.end()},
                     .tables = {}});
    for (const v1::TableHashes& table : update.tables()) {
      record.tables.push_back({.table = table.table(),
                               .parameters = table.parameters(),
                               .gradient = table.gradient(),
                               .keys = table.keys()});
    }
  }
  return decoded;
}

v1::Assignment::Phase EncodePhase(TaskPhase phase) {
  switch (phase) {
    case TaskPhase::kIdle:
      return v1::Assignment::IDLE;
    case TaskPhase::kTrain:
      return v1::Assignment::TRAIN;
    case TaskPhase::kEvaluate:
      return v1::Assignment::EVALUATE;
    case TaskPhase::kExport:
      return v1::Assignment::EXPORT;
    case TaskPhase::kFinish:
      return v1::Assignment::FINISH;
  }
  return v1::Assignment::PHASE_UNSPECIFIED;
}

void EncodeAssignment(const Assignment& assignment, v1::Assignment& out) {
  out.set_generation(assignment.generation.value());
  out.set_phase(EncodePhase(assignment.phase));
  out.set_epoch(assignment.epoch.value());
  for (const SlotLease& lease : assignment.slots) {
    v1::SlotLease& slot = *out.add_slots();
    slot.set_slot(lease.slot.value());
    slot.set_iteration_begin(lease.begin.value());
    slot.set_iteration_end(lease.end.value());
  }
  for (const SampleLease& lease : assignment.samples) {
    v1::SampleLease& sample = *out.add_samples();
    sample.set_lease_id(lease.id.value());
    sample.set_begin(lease.positions.begin);
    sample.set_end(lease.positions.end);
  }
  out.set_start_iteration(assignment.start_iteration.value());
  out.set_epoch_first_iteration(assignment.epoch_first_iteration.value());
  out.set_export_path(assignment.export_path);
  out.set_paused(assignment.paused);
  out.set_staged_path(assignment.staged_path);
}

}  // namespace

absl::StatusOr<TaskReport> DecodeTaskReport(const v1::SyncTaskRequest& request) {
  if (request.rank() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank: ", request.rank(), ", expected 0 or more"));
  }
  const v1::TaskProgress& progress = request.progress();
  if (!std::isfinite(progress.loss_total())) {
    return absl::InvalidArgumentError(
        absl::StrCat("progress.loss_total: ", progress.loss_total(),
                     ", expected a finite number; report a Failure with reason DIVERGED"));
  }
  TaskReport report;
  report.task = {request.job_id(), Rank(request.rank()), Incarnation(request.incarnation())};
  report.assignment_seen = Generation(request.assignment_seen());
  report.routing_seen = Generation(request.routing_seen());
  report.revision_seen = DecodeRevision(request.revision_seen());
  report.iterations = Iteration(progress.iterations());
  for (const v1::SlotProgress& slot : progress.slots()) {
    report.slots.push_back({SlotId(slot.slot()), Iteration(slot.iteration_done())});
  }
  for (const v1::SampleProgress& sample : progress.samples()) {
    CAPSTAN_ASSIGN_OR_RETURN(report.samples.emplace_back(), DecodeSample(sample));
  }
  report.totals = {progress.samples_total(),
                   progress.loss_total(),
                   progress.correct_total(),
                   {progress.staleness_counts().begin(), progress.staleness_counts().end()},
                   progress.rows_cached(),
                   progress.rows_pulled()};
  report.exported = progress.exported();
  report.idle = request.idle();
  report.preparing = request.preparing();
  report.activity = {Cut(request.activity().what(), kTextBytesMax), request.activity().done()};
  CAPSTAN_ASSIGN_OR_RETURN(report.updates, DecodeUpdates(request));
  if (request.has_wait()) report.wait = DecodeWait(request.wait());
  if (request.has_failure()) report.failure = DecodeFailure(request.failure());
  report.gpus_lost.assign(request.failure().gpus_lost().begin(),
                          request.failure().gpus_lost().end());
  // A failure without a reason is a failure, too.
  if (request.has_failure() && !report.failure.happened()) {
    report.failure.reason = FailureReason::kInternal;
  }
  return report;
}

void EncodeTaskReply(const TaskReply& reply, const AdmittedJob& job, v1::SyncTaskResponse& out) {
  out.set_lease_ms(absl::ToInt64Milliseconds(reply.lease));
  out.set_sync_interval_ms(absl::ToInt64Milliseconds(reply.sync_interval));
  EncodeRevision(reply.revision, *out.mutable_revision());
  if (reply.has_assignment) EncodeAssignment(reply.assignment, *out.mutable_assignment());
  if (reply.routing == nullptr) return;
  EncodeRouting(*reply.routing, *out.mutable_routing());
  if (!reply.first_routing) return;
  for (const v1::TableSpec& table : job.tables) *out.add_tables() = table;
}

void EncodeWait(const Wait& wait, v1::Wait& out) {
  out.set_what(wait.what);
  out.set_iteration(wait.iteration.value());
  out.set_waited_ms(absl::ToInt64Milliseconds(wait.waited));
  out.set_peer(wait.peer);
  for (const NodeId& server : wait.silent) out.add_silent(server);
  for (const WaitingOn& waiting : wait.waiting_on) {
    v1::WaitingOn& entry = *out.add_waiting_on();
    entry.set_table(waiting.table);
    entry.set_shard(waiting.shard);
    entry.set_iteration(waiting.iteration.value());
    for (const Rank rank : waiting.ranks) entry.add_ranks(rank.value());
    for (const SlotId slot : waiting.slots) entry.add_slots(slot.value());
  }
}

void EncodeActivity(const Activity& activity, v1::Activity& out) {
  out.set_what(activity.what);
  out.set_done(activity.done);
}

}  // namespace capstan::scheduler
