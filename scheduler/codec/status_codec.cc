#include "scheduler/codec/status_codec.h"

#include <algorithm>

#include "common/devices/devices_codec.h"
#include "common/observability/utf8.h"
#include "scheduler/codec/job_figures.h"
#include "scheduler/codec/shared_codec.h"
#include "scheduler/codec/task_codec.h"
#include "scheduler/core/plan/job_plan.h"

namespace capstan::scheduler {
namespace {

const char* PhaseName(JobPhase phase) {
  switch (phase) {
    case JobPhase::kPlacing:
      return "placing";
    case JobPhase::kStarting:
      return "starting";
    case JobPhase::kTraining:
      return "training";
    case JobPhase::kEvaluating:
      return "evaluating";
    case JobPhase::kExporting:
      return "exporting";
    case JobPhase::kFinishing:
      return "finishing";
    case JobPhase::kCheckpointing:
      return "checkpointing";
    case JobPhase::kRecovering:
      return "recovering";
  }
  return "";
}

void EncodeTaskStatus(const TaskView& view, Instant now, v1::TaskStatus& out) {
  out.set_rank(view.rank.value());
  out.set_incarnation(view.incarnation.value());
  out.set_node_id(view.node);
  out.set_address(view.address);
  out.set_state(view.state);
  out.set_iteration(view.iteration.value());
  out.set_samples_total(view.samples);
  out.set_last_report_ms(absl::ToInt64Milliseconds(now - view.last_report));
  if (!view.wait.what.empty()) EncodeWait(view.wait, *out.mutable_wait());
  if (!view.activity.what.empty()) EncodeActivity(view.activity, *out.mutable_activity());
  out.mutable_gpus()->Add(view.gpus.begin(), view.gpus.end());
}

void EncodeEvaluation(const EvaluationFigures& figures, v1::Evaluation& out) {
  out.set_samples(figures.samples);
  out.set_loss(figures.loss);
  if (figures.accuracy) out.set_accuracy(*figures.accuracy);
  if (figures.auc) out.set_auc(*figures.auc);
  if (figures.rmse) out.set_rmse(*figures.rmse);
  if (figures.mae) out.set_mae(*figures.mae);
  if (figures.f1) out.set_f1(*figures.f1);
  if (figures.top5_accuracy) out.set_top5_accuracy(*figures.top5_accuracy);
}

v1::Objective EncodeObjective(Objective objective) {
  switch (objective) {
    case Objective::kClasses:
      return v1::CLASSES;
    case Objective::kClicks:
      return v1::CLICKS;
    case Objective::kRatings:
      return v1::RATINGS;
    case Objective::kWords:
      return v1::WORDS;
    case Objective::kUnlabeled:
      return v1::UNLABELED;
    case Objective::kNumbers:
      return v1::NUMBERS;
    case Objective::kLabels:
      return v1::LABELS;
  }
  return v1::CLASSES;
}

// Returns what the figures of the job mean. A program has no accuracy if none of its samples has
// one so far.
v1::Objective ObjectiveOf(const JobView& view, const AdmittedJob& job) {
  const JobFigures figures{job.plan.objective, job.spec.has_program()};
  const auto counted = [&figures](double share) { return figures.Accuracy(share).has_value(); };
  const auto any = [&counted](const EpochResult& result) {
    return counted(result.train_accuracy) || counted(result.test_accuracy);
  };
  if (figures.of_program && !counted(view.accuracy) &&
      std::none_of(view.results.begin(), view.results.end(), any)) {
    return v1::UNLABELED;
  }
  return EncodeObjective(job.plan.objective);
}

void EncodeEvent(const JobEvent& event, const Calendar& calendar, v1::JobEvent& out) {
  out.set_kind(static_cast<v1::JobEvent::Kind>(event.kind));  // Both enums have the same numbers.
  out.set_node_id(event.node);
  out.set_text(ToValidUtf8(event.text));  // JobHistory may have cut it within a character.
  out.set_unix_ms(calendar.UnixMs(event.last));
  out.set_first_unix_ms(calendar.UnixMs(event.first));
  out.set_count(event.count);
}

}  // namespace

v1::JobState EncodeJobState(JobState state) {
  switch (state) {
    case JobState::kPending:
      return v1::PENDING;
    case JobState::kRunning:
      return v1::RUNNING;
    case JobState::kSucceeded:
      return v1::SUCCEEDED;
    case JobState::kStopped:
      return v1::STOPPED;
    case JobState::kFailed:
      return v1::FAILED;
  }
  return v1::JOB_STATE_UNSPECIFIED;
}

void EncodeEpochResult(const EpochResult& result, v1::EpochResult& out) {
  out.set_epoch(result.epoch.value() + 1);
  out.set_train_loss(result.train_loss);
  out.set_train_accuracy(result.train_accuracy);
  out.set_test_loss(result.test_loss);
  out.set_test_accuracy(result.test_accuracy);
  out.set_test_samples(result.test_samples);
  out.set_seconds(absl::ToDoubleSeconds(result.duration));
  if (result.test_auc) out.set_test_auc(*result.test_auc);
  if (result.test_rmse) out.set_test_rmse(*result.test_rmse);
  if (result.test_mae) out.set_test_mae(*result.test_mae);
  if (result.test_f1) out.set_test_f1(*result.test_f1);
  if (result.test_top5_accuracy) out.set_test_top5_accuracy(*result.test_top5_accuracy);
  if (result.validation) EncodeEvaluation(*result.validation, *out.mutable_validation());
  if (result.learning_rate_factor != 1) {
    out.set_learning_rate_factor(result.learning_rate_factor);
  }
}

void EncodeJobStatus(const JobView& view, const AdmittedJob& job, const Calendar& calendar,
                     Instant now, StatusDetail detail, v1::JobStatus& out) {
  out.set_job_id(view.id);
  out.set_state(EncodeJobState(view.state));
  if (view.failure.happened()) EncodeFailure(view.failure, *out.mutable_failure());
  out.set_detail(view.detail);
  out.set_revision(view.revision);
  out.set_submitted_unix_ms(calendar.UnixMs(view.submitted));
  if (view.started) out.set_started_unix_ms(calendar.UnixMs(*view.started));
  if (view.ended) out.set_ended_unix_ms(calendar.UnixMs(*view.ended));
  out.set_mode(job.mode);
  out.set_objective(ObjectiveOf(view, job));
  if (view.started) out.set_epoch(std::min(view.epoch.value() + 1, job.plan.epochs));
  out.set_epochs(job.plan.epochs);
  out.set_model_directory(view.model_folder.empty() ? job.output_directory : view.model_folder);
  out.set_has_model(view.has_model);
  out.set_saved_checkpoint(view.saved_folder);
  if (view.model_kept_until) {
    out.set_model_kept_until_unix_ms(calendar.UnixMs(*view.model_kept_until));
  }
  out.set_iteration(view.iteration);
  out.set_samples_done(view.samples_done);
  out.set_samples_total(view.samples_total);
  out.set_samples_per_second(view.samples_per_second);
  out.set_loss(view.loss);
  out.set_accuracy(view.accuracy);
  for (const int64_t count : view.staleness_counts) out.add_staleness_counts(count);
  out.set_rows_cached(view.rows_cached);
  out.set_rows_pulled(view.rows_pulled);
  if (view.best_epoch) out.set_best_epoch(view.best_epoch->value() + 1);
  out.set_restarts(view.restarts);
  out.set_output_directory(job.output_directory);
  if (view.phase) out.set_phase(PhaseName(*view.phase));
  *out.mutable_labels() = job.submitted.labels();
  out.set_note(job.submitted.note());
  out.set_owner(job.plan.owner);
  if (detail == StatusDetail::kList) return;
  for (const EpochResult& result : view.results) EncodeEpochResult(result, *out.add_results());
  for (const JobEvent& event : view.events) EncodeEvent(event, calendar, *out.add_events());
  out.set_events_forgotten(view.events_forgotten);
  for (const TaskView& task : view.tasks) EncodeTaskStatus(task, now, *out.add_tasks());
  *out.mutable_spec() = job.submitted;
  *out.mutable_effective_spec() = job.spec;
}

void EncodeNodeStatus(const NodeView& view, Instant now, v1::NodeStatus& out) {
  out.set_node_id(view.id);
  out.set_role(view.info.role == Role::kServer ? v1::SERVER : v1::WORKER);
  out.set_address(view.info.address);
  out.set_hostname(view.info.hostname);
  out.set_pid(static_cast<int32_t>(view.info.pid));
  out.set_incarnation(view.incarnation.value());
  out.set_alive(view.alive);
  out.set_last_seen_ms(absl::ToInt64Milliseconds(now - view.last_seen));
  out.set_task_capacity(view.info.task_capacity);
  out.set_tasks(view.tasks);
  out.set_shards(view.shards);
  out.set_version(view.info.version);
  out.set_draining(view.draining);
  for (const PluginRule& rule : view.info.plugin_rules) {
    v1::PluginRule& each = *out.add_plugin_rules();
    each.set_name(rule.name);
    each.set_digest(rule.digest);
  }
  if (view.info.role != Role::kWorker) return;
  DevicesToProto(view.info.devices, *out.mutable_devices());
  out.mutable_gpus_taken()->Add(view.gpus_taken.begin(), view.gpus_taken.end());
  out.mutable_gpus_lost()->Add(view.gpus_lost.begin(), view.gpus_lost.end());
}

void EncodeSnapshotReply(const SnapshotReply& reply, const AdmittedJob& job,
                         v1::OpenSnapshotResponse& out) {
  out.set_snapshot_id(reply.id.value());
  out.set_iteration(reply.iteration);
  for (const v1::TableSpec& table : job.tables) *out.add_tables() = table;
  EncodeRouting(*reply.routing, *out.mutable_routing());
}

void EncodeDrainReply(const DrainReply& reply, v1::DrainNodeResponse& out) {
  out.set_safe_to_stop(reply.safe_to_stop);
  out.set_shards(reply.shards);
  out.set_tasks(reply.tasks);
  out.set_detail(reply.detail);
}

}  // namespace capstan::scheduler
