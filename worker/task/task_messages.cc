#include "worker/task/task_messages.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/metrics/evaluation.h"
#include "common/metrics/score_counts.h"
#include "common/status/status_macros.h"

namespace capstan::worker {
namespace {

absl::StatusOr<Phase> PhaseFromProto(v1::Assignment::Phase phase) {
  switch (phase) {
    case v1::Assignment::IDLE:
      return Phase::kIdle;
    case v1::Assignment::TRAIN:
      return Phase::kTrain;
    case v1::Assignment::EVALUATE:
      return Phase::kEvaluate;
    case v1::Assignment::EXPORT:
      return Phase::kExport;
    case v1::Assignment::FINISH:
      return Phase::kFinish;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("assignment.phase: got ", static_cast<int>(phase), ", expected 1 to 5"));
  }
}

absl::Status CheckRange(absl::string_view what, int64_t begin, int64_t end) {
  if (begin >= 0 && end >= begin) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("assignment.", what, ": got the range [", begin, ", ", end, ")"));
}

void EncodeScores(const ScoreCounts& scores, v1::ScoreCounts& out) {
  uint32_t before = 0;
  for (const auto& [bin, counts] : scores.bins()) {
    out.add_bin_steps(bin - before);
    out.add_non_clicks(counts.non_clicks);
    out.add_clicks(counts.clicks);
    before = bin;
  }
}

void EncodeOutputs(const OutputSums& outputs, v1::OutputSums& out) {
  out.set_values(outputs.values);
  out.set_squared_errors(outputs.squared_errors);
  out.set_absolute_errors(outputs.absolute_errors);
  out.set_among_five(outputs.among_five);
  out.set_predicted(outputs.predicted);
  out.set_positives(outputs.positives);
  out.set_hits(outputs.hits);
}

}  // namespace

absl::StatusOr<Assignment> AssignmentFromProto(const v1::Assignment& proto) {
  Assignment assignment{.generation = Generation(proto.generation()),
                        .epoch = Epoch(proto.epoch()),
                        .start_iteration = Iteration(proto.start_iteration()),
                        .epoch_first_iteration = Iteration(proto.epoch_first_iteration()),
                        .export_path = proto.export_path(),
                        .staged_path = proto.staged_path(),
                        .paused = proto.paused()};
  CAPSTAN_ASSIGN_OR_RETURN(assignment.phase, PhaseFromProto(proto.phase()));
  for (const v1::SlotLease& lease : proto.slots()) {
    CAPSTAN_RETURN_IF_ERROR(CheckRange("slots", lease.iteration_begin(), lease.iteration_end()));
    assignment.slots.push_back({SlotId(lease.slot()), Iteration(lease.iteration_begin()),
                                Iteration(lease.iteration_end())});
  }
  for (const v1::SampleLease& lease : proto.samples()) {
    CAPSTAN_RETURN_IF_ERROR(CheckRange("samples", lease.begin(), lease.end()));
    assignment.samples.push_back({LeaseId(lease.lease_id()), {lease.begin(), lease.end()}});
  }
  return assignment;
}

v1::TaskProgress ProgressToProto(const TaskBoard& board) {
  v1::TaskProgress progress;
  progress.set_iterations(board.iterations_done().value());
  for (const SlotProgress& slot : board.slot_progress()) {
    v1::SlotProgress* out = progress.add_slots();
    out->set_slot(slot.slot.value());
    out->set_iteration_done(slot.done.value());
  }
  for (const SampleProgress& lease : board.sample_progress()) {
    v1::SampleProgress* out = progress.add_samples();
    out->set_lease_id(lease.lease.value());
    out->set_position_done(lease.position_done);
    out->set_loss_sum(lease.loss_sum);
    out->set_correct(lease.correct);
    if (!lease.scores.empty()) EncodeScores(lease.scores, *out->mutable_scores());
    if (lease.outputs != OutputSums()) EncodeOutputs(lease.outputs, *out->mutable_outputs());
  }
  progress.set_samples_total(board.totals().samples);
  progress.set_loss_total(board.totals().loss);
  progress.set_correct_total(board.totals().correct);
  for (const int64_t count : board.totals().staleness_counts) progress.add_staleness_counts(count);
  progress.set_rows_cached(board.totals().rows_cached);
  progress.set_rows_pulled(board.totals().rows_pulled);
  progress.set_exported(board.exported());
  return progress;
}

v1::SyncTaskRequest MakeReport(const v1::TaskAssignment& task, const TaskBoard& board,
                               bool prepared, const v1::StoreRevision& seen) {
  v1::SyncTaskRequest report;
  report.set_job_id(task.job_id());
  report.set_rank(task.rank());
  report.set_incarnation(task.incarnation());
  report.set_assignment_seen(board.assignment().generation.value());
  *report.mutable_progress() = ProgressToProto(board);
  report.set_idle(prepared && board.Idle());
  report.set_preparing(!prepared);
  if (seen.scheduler() != 0) *report.mutable_revision_seen() = seen;
  return report;
}

v1::Wait WaitToProto(const SessionWait& wait, Instant now) {
  v1::Wait proto;
  proto.set_what(wait.request.kind == OpKind::kPush ? "push" : "pull");
  proto.set_iteration(wait.request.iteration.value());
  proto.set_waited_ms(absl::ToInt64Milliseconds(now - wait.since));
  proto.set_peer(wait.peer);
  for (const std::string& server : wait.silent) proto.add_silent(server);
  for (const Waiting& waiting : wait.waiting_on) {
    v1::WaitingOn* out = proto.add_waiting_on();
    out->set_table(waiting.shard.table.value());
    out->set_shard(waiting.shard.shard.value());
    out->set_iteration(waiting.iteration.value());
    for (const int32_t rank : waiting.ranks) out->add_ranks(rank);
    for (const int32_t slot : waiting.slots) out->add_slots(slot);
  }
  return proto;
}

}  // namespace capstan::worker
