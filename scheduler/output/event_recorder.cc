#include "scheduler/output/event_recorder.h"

#include <sys/stat.h>

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/observability/log.h"
#include "common/storage/files/path_access.h"
#include "common/time/duration_text.h"
#include "scheduler/codec/job_figures.h"
#include "scheduler/core/job/job_history.h"
#include "scheduler/core/nodes/membership.h"
#include "scheduler/core/plan/job_plan.h"

namespace capstan::scheduler {
namespace {

template <typename... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <typename... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

const char* PhaseText(JobPhase phase) {
  switch (phase) {
    case JobPhase::kPlacing:
      return "places its tables";
    case JobPhase::kStarting:
      return "starts its tasks";
    case JobPhase::kTraining:
      return "trains";
    case JobPhase::kEvaluating:
      return "evaluates";
    case JobPhase::kExporting:
      return "writes the model";
    case JobPhase::kFinishing:
      return "has written the model";
    case JobPhase::kCheckpointing:
      return "is quiet for a checkpoint";
    case JobPhase::kRecovering:
      return "has lost shards and waits for them";
  }
  return "";
}

void Log(const NodeJoined& e) {
  LogInfo({}, "{} joined: {} at {}, incarnation {}", e.node, std::string(RoleName(e.role)),
          e.address, e.incarnation.value());
}
void Log(const NodeDied& e) {
  LogWarning({}, "{} (incarnation {}) is dead: {}", e.node, e.incarnation.value(), e.why);
}
// NodeDied and NodeJoined log the death and the return.
void Log(const ServerLost&) {}
void Log(const ServerReturned&) {}
void Log(const ServerFailed& e) {
  LogWarning({.job = e.job}, "{} holds nothing of it any more: {}", e.node, e.why);
}
void Log(const LinkDied& e) {
  LogWarning({.job = e.job}, "{} cannot reach {}, and both live: {}", e.worker, e.server,
             e.shards_move ? "the shards move to other servers" : "the task leaves that worker");
}
void Log(const SchedulerStalled& e) {
  LogWarning({}, "this scheduler did not run for {}: every lease begins anew",
             DurationText(e.late));
}
void Log(const SchedulerIsolated& e) {
  LogWarning({},
             "{} of {} daemons fell silent at once: this scheduler is cut off, all keep their "
             "leases",
             e.silent, e.alive);
}
void Log(const IsolationEnded& e) {
  LogWarning({}, "this scheduler was cut off for {}; {} daemons are still silent",
             DurationText(e.lasted), e.silent);
}
void Log(const JobSubmitted& e) { LogInfo({.job = e.job}, "submitted"); }
void Log(const JobStarted& e) {
  LogInfo({.job = e.job}, "started on {}", absl::StrJoin(e.servers, ", "));
}
void Log(const JobAdopted& e) {
  LogWarning(
      {.job = e.job},
      "taken up from its logs, as a job of cluster {}; where it stood was recorded {} before",
      e.cluster, DurationText(e.record_age));
}
void Log(const TrainedTwice& e) {
  LogWarning({.job = e.job},
             "at most {} batches that the model has already are trained once more: they came after "
             "the record",
             e.batches_max);
}
void Log(const PhaseStarted& e) {
  LogInfo({.job = e.job}, "{} (epoch {})", PhaseText(e.phase), e.epoch.value() + 1);
}
void Log(const RoutingChanged& e) {
  LogInfo({.job = e.job},
          "routing generation {}: {} shards have a new primary, {} replicas are being "
          "filled",
          e.generation.value(), e.promoted, e.filling);
}
void Log(const TaskPlaced& e) {
  LogInfo({.job = e.task.job}, "task {} {} on {}, incarnation {}", e.task.rank.value(),
          e.restart ? "starts again" : "starts", e.node, e.task.incarnation.value());
}
void Log(const TaskDied& e) {
  if (!e.failure.happened()) {
    LogInfo({.job = e.task.job}, "task {} on {} (incarnation {}) has ended: {}",
            e.task.rank.value(), e.node, e.task.incarnation.value(), e.failure.message);
    return;
  }
  LogWarning({.job = e.task.job}, "task {} on {} (incarnation {}) died: {}", e.task.rank.value(),
             e.node, e.task.incarnation.value(), e.failure.message);
}
std::string Figure(const char* name, const std::optional<double>& value) {
  return value ? absl::StrFormat(" %s %.4f", name, *value) : "";
}
// Returns "loss 0.4123 accuracy 0.8512", without the figures that the job does not have.
std::string Figures(double loss, double accuracy, const JobFigures& job) {
  return absl::StrFormat("loss %.4f%s", loss, Figure("accuracy", job.Accuracy(accuracy)));
}
// Returns "loss 0.4123 AUC 0.8512 of 1000", without the figures that the job does not have.
std::string Figures(const EvaluationFigures& figures, const JobFigures& job) {
  return absl::StrCat(Figures(figures.loss, figures.accuracy.value_or(0), job),
                      Figure("AUC", figures.auc), Figure("RMSE", figures.rmse),
                      Figure("MAE", figures.mae), Figure("F1", figures.f1),
                      Figure("top-5 accuracy", figures.top5_accuracy), " of ", figures.samples);
}
void Log(const Report& e, const JobFigures& job) {
  LogInfo({.job = e.job, .iteration = e.iteration}, "epoch {} {}, {:.0f} samples/s",
          e.epoch.value() + 1, Figures(e.loss, e.accuracy, job), e.samples_per_second);
}
void Log(const EpochDone& e, const JobFigures& job) {
  const EpochResult& result = e.result;
  const std::string rate = result.learning_rate_factor == 1
                               ? ""
                               : absl::StrCat(", learning rate x ", result.learning_rate_factor);
  LogInfo({.job = e.job, .iteration = e.iteration}, "epoch {} is done: train {}, {} {}{}",
          result.epoch.value() + 1, Figures(result.train_loss, result.train_accuracy, job),
          result.validation ? "validation" : "test",
          Figures(result.validation.value_or(TestFigures(result)), job), rate);
}
void Log(const ModelTested& e, const JobFigures& job) {
  LogInfo({.job = e.job, .iteration = e.iteration}, "the model, that of epoch {}, is tested: {}",
          e.result.epoch.value() + 1, Figures(TestFigures(e.result), job));
}
void Log(const CheckpointEnded& e) {
  if (e.why.empty()) {
    LogInfo({.job = e.job}, "checkpoint {} is complete: {}", e.id.value(), e.folder);
  } else {
    LogWarning({.job = e.job}, "no checkpoint {}: {}", e.folder, e.why);
  }
}
void Log(const SnapshotTaken& e) {
  if (e.why.empty()) {
    LogInfo({.job = e.job, .iteration = e.iteration}, "snapshot {} is taken", e.id.value());
  } else {
    LogWarning({.job = e.job}, "no snapshot {}: {}", e.id.value(), e.why);
  }
}
void Log(const WentBack& e) {
  if (e.best) {
    LogInfo({.job = e.job}, "goes back to the model of its best epoch, {}", e.best->value() + 1);
    return;
  }
  LogWarning({.job = e.job}, "goes back to {}", e.folder.empty() ? "its beginning" : e.folder);
}
void Log(const ModelLeftToTask& e) {
  LogWarning({.job = e.task.job}, "task {} is to move its model to its place itself: {}",
             e.task.rank.value(), e.why);
}
void Log(const ModelKept& e) {
  LogWarning({.job = e.job}, "its model cannot be written, and is kept: {}", e.why);
}
// Users need not know them.
void Log(const JobLeft&) {}
void Log(const UpdatesRecorded&) {}
void Log(const JobEnded& e) {
  if (e.state == JobState::kFailed) {
    LogError({.job = e.job}, "failed: {}", e.failure.message);
  } else {
    LogInfo({.job = e.job}, "{}", e.state == JobState::kStopped ? "stopped" : "succeeded");
  }
}

JobFigures FiguresOf(const AdmittedJob& job) {
  return {job.plan.objective, job.spec.has_program()};
}

void Warn(const JobId& job, const absl::Status& status) {
  if (!status.ok()) LogWarning({.job = job}, "{}", std::string(status.message()));
}

}  // namespace

void EventRecorder::Record(const RecordedEvent& recorded) {
  const AdmittedJob* job = recorded.job.get();
  const JobFigures figures = job != nullptr ? FiguresOf(*job) : JobFigures();
  std::visit(
      [&figures](const auto& event) {
        if constexpr (requires { Log(event, figures); }) {
          Log(event, figures);
        } else {
          Log(event);
        }
      },
      recorded.event);
  if (recorded.job != nullptr) WriteFiles(recorded);
}

void EventRecorder::Complete(const AdmittedJob& job, const v1::JobStatus& status) {
  // A folder that the user removed is not created again.
  struct stat folder;
  if (StatPath(job.output_directory, &folder) != 0) return;
  JobOutput* output = OutputOf(job);
  if (output != nullptr && !output->HasStatus(status.state())) {
    Warn(job.plan.id, output->WriteCurve());
    Warn(job.plan.id, output->WriteStatus(status));
  }
  outputs_.erase(job.plan.id);
}

JobOutput* EventRecorder::OutputOf(const AdmittedJob& job) {
  const auto [it, fresh] = outputs_.insert({job.plan.id, nullptr});
  if (!fresh) return it->second.get();
  auto output = JobOutput::Open(job.output_directory, job.plan.id, job.mode, FiguresOf(job));
  if (output.ok()) {
    it->second = *std::move(output);
  } else {
    Warn(job.plan.id, output.status());
  }
  return it->second.get();
}

void EventRecorder::WriteFiles(const RecordedEvent& recorded) {
  const JobId& id = recorded.job->plan.id;
  JobOutput* output = OutputOf(*recorded.job);
  if (output == nullptr) return;
  const auto write_status = [&] {
    if (recorded.status != nullptr) Warn(id, output->WriteStatus(*recorded.status));
  };
  std::visit(
      Overloaded{
          [&](const JobStarted&) { write_status(); }, [&](const JobAdopted&) { write_status(); },
          [&](const Report& report) { Warn(id, output->Add(report, recorded.unix_ms)); },
          [&](const UpdatesRecorded& updates) {
            Warn(id, output->Add(updates, recorded.job->plan.unique_id, recorded.job->tables));
          },
          [&](const EpochDone& done) { Warn(id, output->Add(done, recorded.unix_ms)); },
          [&](const ModelTested& done) { Warn(id, output->Add(done, recorded.unix_ms)); },
          [&](const JobEnded&) {
            Warn(id, output->WriteCurve());
            write_status();
          },
          [](const auto&) {}},
      recorded.event);
  if (std::holds_alternative<JobEnded>(recorded.event)) outputs_.erase(id);
}

}  // namespace capstan::scheduler
