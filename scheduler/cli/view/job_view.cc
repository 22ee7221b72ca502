#include "scheduler/cli/view/job_view.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/time/duration_text.h"
#include "scheduler/cli/view/event_view.h"
#include "scheduler/cli/view/text/format.h"
#include "scheduler/cli/view/text/text_table.h"

namespace capstan::cli {
namespace {

using Align = TextTable::Align;

constexpr int kNamedMax = 8;  // Ranks or slots that one wait lists.

absl::Duration RunTime(const v1::JobStatus& job, absl::Time now) {
  if (job.started_unix_ms() == 0) return absl::ZeroDuration();
  const absl::Time end = job.ended_unix_ms() == 0 ? now : absl::FromUnixMillis(job.ended_unix_ms());
  return std::max(absl::ZeroDuration(), end - absl::FromUnixMillis(job.started_unix_ms()));
}

std::string Share(int64_t done, int64_t total) {
  if (total <= 0) return "";
  return absl::StrFormat("%.0f %%", 100.0 * static_cast<double>(done) / static_cast<double>(total));
}

// Returns "rank 0" or "ranks 0, 2 and 7 more".
std::string Numbers(absl::string_view word, const google::protobuf::RepeatedField<int32_t>& list) {
  const int shown = std::min(list.size(), kNamedMax);
  const std::string named = absl::StrJoin(list.begin(), list.begin() + shown, ", ");
  std::string text = absl::StrCat(word, list.size() == 1 ? " " : "s ", named);
  if (shown < list.size()) absl::StrAppend(&text, " and ", list.size() - shown, " more");
  return text;
}

std::string DescribeWaitingOn(const v1::WaitingOn& waiting) {
  if (waiting.ranks_size() > 0) {
    return absl::StrCat("needs iteration ", waiting.iteration(), " of ",
                        Numbers("rank", waiting.ranks()));
  }
  if (waiting.slots_size() > 0) {
    return absl::StrCat("needs ", Numbers("slot", waiting.slots()), " of iteration ",
                        waiting.iteration());
  }
  return absl::StrCat("needs iteration ", waiting.iteration(), " of shard ", waiting.shard());
}

// Describes the task's wait. A task that does not wait gets the progress of its activity.
std::string DetailOf(const v1::TaskStatus& task) {
  const v1::Activity& activity = task.activity();
  if (!task.wait().what().empty() || activity.what().empty()) return DescribeWait(task.wait());
  return absl::StrCat(FormatCount(activity.done()), " ", activity.what());
}

std::string TaskTable(const v1::JobStatus& job) {
  const bool gpus = std::any_of(job.tasks().begin(), job.tasks().end(),
                                [](const v1::TaskStatus& task) { return task.gpus_size() > 0; });
  std::vector<TextTable::Column> columns = {{"RANK", Align::kRight}, {"NODE"}};
  if (gpus) columns.push_back({"GPUS"});
  columns.insert(columns.end(), {{"STATE"},
                                 {"ITERATION", Align::kRight},
                                 {"SAMPLES", Align::kRight},
                                 {"LAST REPORT", Align::kRight},
                                 {"DETAIL"}});
  TextTable table(columns);
  for (const v1::TaskStatus& task : job.tasks()) {
    std::vector<std::string> row = {absl::StrCat(task.rank()), task.node_id()};
    if (gpus) row.push_back(absl::StrJoin(task.gpus(), ","));
    row.insert(row.end(),
               {task.state(), FormatCount(task.iteration()), FormatCount(task.samples_total()),
                DurationText(absl::Milliseconds(task.last_report_ms())), DetailOf(task)});
    table.AddRow(row);
  }
  return table.ToString();
}

// Returns the figures of the test split as an Evaluation.
v1::Evaluation TestOf(const v1::EpochResult& result, const v1::JobStatus& job) {
  v1::Evaluation test;
  test.set_samples(result.test_samples());
  test.set_loss(result.test_loss());
  if (HasAccuracy(job, result.test_accuracy())) test.set_accuracy(result.test_accuracy());
  if (result.has_test_auc()) test.set_auc(result.test_auc());
  if (result.has_test_rmse()) test.set_rmse(result.test_rmse());
  if (result.has_test_mae()) test.set_mae(result.test_mae());
  if (result.has_test_f1()) test.set_f1(result.test_f1());
  if (result.has_test_top5_accuracy()) test.set_top5_accuracy(result.test_top5_accuracy());
  return test;
}

std::string TrainAccuracy(const v1::EpochResult& result, const v1::JobStatus& job) {
  const double accuracy = result.train_accuracy();
  return HasAccuracy(job, accuracy) ? FormatShare(accuracy) : "-";
}

std::string AccuracyOf(const v1::Evaluation& evaluation) {
  return evaluation.has_accuracy() ? FormatShare(evaluation.accuracy()) : "-";
}

using FigureTexts = std::vector<std::pair<std::string, std::string>>;  // Names and values.

// Returns the figures of the job's objective, without loss and accuracy. "-": these samples have no
// such figure.
FigureTexts FiguresOf(const v1::Evaluation& evaluation, v1::Objective objective) {
  FigureTexts figures;
  const auto add = [&figures](const char* name, bool there, double value) {
    figures.emplace_back(name, there ? FormatLoss(value) : "-");
  };
  const bool labels = objective == v1::LABELS, numbers = objective == v1::NUMBERS;
  if (objective == v1::CLICKS || labels) add("AUC", evaluation.has_auc(), evaluation.auc());
  if (objective == v1::RATINGS || numbers) add("RMSE", evaluation.has_rmse(), evaluation.rmse());
  if (numbers) add("MAE", evaluation.has_mae(), evaluation.mae());
  if (labels) add("F1", evaluation.has_f1(), evaluation.f1());
  return figures;
}

// Returns loss and accuracy, then the figures of FiguresOf(), in the order of tables and lines.
FigureTexts AllFigures(const v1::Evaluation& evaluation, v1::Objective objective) {
  FigureTexts figures = {{"loss", FormatLoss(evaluation.loss())}};
  if (HasAccuracy(objective)) {
    figures.emplace_back("accuracy", AccuracyOf(evaluation));
  }
  for (auto& figure : FiguresOf(evaluation, objective)) figures.push_back(std::move(figure));
  return figures;
}

std::string RateText(const v1::EpochResult& result) {
  const double factor = result.learning_rate_factor();
  return factor > 0 ? absl::StrFormat("x%.3g", factor) : "";
}

std::string ResultTable(const v1::JobStatus& job) {
  const v1::Objective objective = job.objective();
  const auto any = [&job](const auto& of) {
    return std::any_of(job.results().begin(), job.results().end(), of);
  };
  const bool validated = any([](const auto& result) { return result.has_validation(); });
  const bool tested =
      !validated || any([](const auto& result) { return result.test_samples() > 0; });
  const bool reduced = any([](const auto& result) { return result.learning_rate_factor() > 0; });
  std::vector<TextTable::Column> columns;
  const auto column = [&columns](bool there, const std::string& heading) {
    if (there) columns.push_back({absl::AsciiStrToUpper(heading), Align::kRight});
  };
  column(true, "EPOCH");
  column(true, "TRAIN LOSS");
  column(HasAccuracy(objective), "TRAIN ACCURACY");
  column(reduced, "RATE");
  for (const char* const split : {"validation ", "test "}) {
    for (const auto& [name, value] : AllFigures({}, objective)) {
      column(split[0] == 'v' ? validated : tested, absl::StrCat(split, name));
    }
  }
  column(true, "TIME");
  TextTable table(columns);
  for (const v1::EpochResult& result : job.results()) {
    std::vector<std::string> cells = {absl::StrCat(result.epoch()),
                                      FormatLoss(result.train_loss())};
    if (HasAccuracy(objective)) cells.push_back(TrainAccuracy(result, job));
    if (reduced) cells.push_back(RateText(result));
    const auto add = [&](bool shown, bool there, const v1::Evaluation& evaluation) {
      if (!shown) return;
      for (const auto& [name, value] : AllFigures(evaluation, objective)) {
        cells.push_back(there ? value : "");
      }
    };
    add(validated, result.has_validation(), result.validation());
    add(tested, result.test_samples() > 0, TestOf(result, job));
    cells.push_back(DurationText(absl::Seconds(result.seconds())));
    table.AddRow(std::move(cells));
  }
  return table.ToString();
}

// Returns the epoch whose model is exported, counted from 1.
int32_t ModelEpoch(const v1::JobStatus& job) {
  if (job.best_epoch() > 0 || job.results_size() == 0) return job.best_epoch();
  return job.results(job.results_size() - 1).epoch();
}

// Returns the best epoch if it is known and was tested, else the newest tested one, else null.
const v1::EpochResult* LastTested(const v1::JobStatus& job) {
  const v1::EpochResult* last = nullptr;
  for (const v1::EpochResult& result : job.results()) {
    if (result.test_samples() == 0) continue;
    last = &result;
    if (result.epoch() == job.best_epoch()) return last;
  }
  return last;
}

// Returns each figure as "name value", with the objective's figures first.
std::string FigureLine(const v1::Evaluation& evaluation, v1::Objective objective) {
  FigureTexts figures = FiguresOf(evaluation, objective);
  if (HasAccuracy(objective)) {
    figures.emplace_back("accuracy", AccuracyOf(evaluation));
  }
  figures.emplace_back("loss", FormatLoss(evaluation.loss()));
  if (evaluation.has_top5_accuracy()) {
    figures.emplace_back("top-5 accuracy", FormatShare(evaluation.top5_accuracy()));
  }
  return absl::StrCat(absl::StrJoin(figures, ", ", absl::PairFormatter(" ")), " on ",
                      FormatCount(evaluation.samples()), " samples");
}

std::string AucText(const v1::EpochResult& result) {
  return result.has_test_auc() ? FormatLoss(result.test_auc()) : "-";
}

std::string RmseText(const v1::EpochResult& result) {
  return result.has_test_rmse() ? FormatLoss(result.test_rmse()) : "-";
}

// Returns true if a job with `objective` has a tested result. Jobs of a list have no results.
bool AnyOf(const v1::ListJobsResponse& jobs, v1::Objective objective) {
  return std::any_of(jobs.jobs().begin(), jobs.jobs().end(), [objective](const auto& job) {
    return job.objective() == objective && LastTested(job) != nullptr;
  });
}

}  // namespace

std::string DescribeFailure(const v1::Failure& failure) {
  if (failure.reason() == v1::Failure::REASON_UNSPECIFIED && failure.message().empty()) return "";
  return absl::StrCat(ReasonName(failure.reason()), ": ", failure.message());
}

std::string DescribeStaleness(const google::protobuf::RepeatedField<int64_t>& counts) {
  double total = 0, weighted = 0;
  int highest = 0;
  for (int k = 0; k < counts.size(); ++k) {
    if (counts[k] <= 0) continue;
    total += static_cast<double>(counts[k]);
    weighted += static_cast<double>(counts[k]) * k;
    highest = k;
  }
  if (total <= 0) return "";
  return absl::StrFormat("mean %.1f, at most %d", weighted / total, highest);
}

std::string DescribeRows(const v1::JobStatus& job) {
  const int64_t rows = job.rows_cached() + job.rows_pulled();
  if (rows == 0) return "";
  return absl::StrCat(Share(job.rows_cached(), rows), " of ", FormatCount(rows),
                      " rows were kept by their worker");
}

std::string DescribeWait(const v1::Wait& wait) {
  if (wait.what().empty()) return "";
  std::string text = absl::StrCat(wait.what(), " at iteration ", wait.iteration());
  if (!wait.peer().empty()) absl::StrAppend(&text, " from ", wait.peer());
  absl::StrAppend(&text, " for ", DurationText(absl::Milliseconds(wait.waited_ms())));
  if (wait.silent_size() > 0) {
    absl::StrAppend(&text, ": no answer from ", absl::StrJoin(wait.silent(), ", "));
  } else if (wait.waiting_on_size() > 0) {
    // All shards of one iteration wait for the same peers, so the first entry is enough.
    absl::StrAppend(&text, ": ", DescribeWaitingOn(wait.waiting_on(0)));
  }
  return text;
}

std::string LabelsText(const v1::JobStatus& job) {
  const std::map<std::string, std::string> sorted(job.labels().begin(), job.labels().end());
  return absl::StrJoin(sorted, ",", absl::PairFormatter("="));
}

std::string JobTable(const v1::ListJobsResponse& jobs, absl::Time now, Columns shown) {
  if (jobs.jobs_size() == 0) return "No jobs. Submit one: capstan job submit FILE\n";
  const bool auc = AnyOf(jobs, v1::CLICKS), rmse = AnyOf(jobs, v1::RATINGS);
  const bool owners = std::any_of(jobs.jobs().begin(), jobs.jobs().end(),
                                  [](const v1::JobStatus& job) { return !job.owner().empty(); });
  std::vector<TextTable::Column> columns = {{"JOB"}};
  if (owners) columns.push_back({"OWNER"});
  columns.insert(columns.end(), {{"STATE"},
                                 {"MODE"},
                                 {"EPOCH", Align::kRight},
                                 {"DONE", Align::kRight},
                                 {"LOSS", Align::kRight},
                                 {"ACCURACY", Align::kRight}});
  if (auc) columns.push_back({"TEST AUC", Align::kRight});
  if (rmse) columns.push_back({"TEST RMSE", Align::kRight});
  columns.push_back({"TIME", Align::kRight});
  const bool wide = shown == Columns::kWide;
  if (wide) {
    columns.insert(columns.end(), {{"SUBMITTED"}, {"ENDED"}, {"OUTPUT"}, {"LABELS"}, {"NOTE"}});
  }
  columns.push_back({"DETAIL"});
  TextTable table(columns);
  for (const v1::JobStatus& job : jobs.jobs()) {
    const bool trained = job.samples_done() > 0;
    const std::string failure = DescribeFailure(job.failure());
    const v1::EpochResult* tested = LastTested(job);
    std::vector<std::string> cells = {job.job_id()};
    if (owners) cells.push_back(job.owner());
    cells.insert(
        cells.end(),
        {StateName(job.state()), job.mode(), absl::StrCat(job.epoch(), "/", job.epochs()),
         Share(job.samples_done(), job.samples_total()), trained ? FormatLoss(job.loss()) : "",
         trained && HasAccuracy(job.objective()) ? FormatShare(job.accuracy()) : ""});
    if (auc) cells.push_back(tested != nullptr ? AucText(*tested) : "");
    if (rmse) cells.push_back(tested != nullptr ? RmseText(*tested) : "");
    cells.push_back(job.started_unix_ms() == 0 ? "" : DurationText(RunTime(job, now)));
    if (wide) {
      cells.insert(cells.end(), {TimeText(job.submitted_unix_ms()), TimeText(job.ended_unix_ms()),
                                 PathOn(job.output_host(), job.output_directory()), LabelsText(job),
                                 job.note()});
    }
    cells.push_back(failure.empty() ? job.detail() : failure);
    table.AddRow(std::move(cells));
  }
  return table.ToString();
}

std::string DescribeJob(const v1::JobStatus& job, absl::Time now) {
  std::string text;
  const std::string phase = job.phase().empty() ? "" : absl::StrCat(", ", job.phase());
  AddField(&text, "job", job.job_id());
  AddField(&text, "owner", job.owner());
  AddField(&text, "state", absl::StrCat(StateName(job.state()), phase));
  AddField(&text, "reason", DescribeFailure(job.failure()));
  AddField(&text, "detail", job.detail());
  AddField(&text, "labels", LabelsText(job));
  AddField(&text, "note", Printable(job.note()));
  AddField(&text, "mode", job.mode());
  AddField(&text, "submitted", TimeText(job.submitted_unix_ms()));
  if (job.started_unix_ms() != 0) {
    AddField(
        &text, "started",
        absl::StrCat(TimeText(job.started_unix_ms()), ", ran ", DurationText(RunTime(job, now))));
  }
  if (job.ended_unix_ms() != 0) AddField(&text, "ended", TimeText(job.ended_unix_ms()));
  if (job.samples_total() > 0) {
    std::string progress =
        absl::StrCat(FormatCount(job.samples_done()), " of ", FormatCount(job.samples_total()),
                     " samples (", Share(job.samples_done(), job.samples_total()), "), iteration ",
                     FormatCount(job.iteration()));
    if (!HasEnded(job.state())) {
      absl::StrAppend(&progress, ", ", FormatRate(job.samples_per_second()));
    }
    AddField(&text, "progress", progress);
  }
  if (job.samples_done() > 0) {
    std::string training = absl::StrCat("loss ", FormatLoss(job.loss()));
    if (HasAccuracy(job, job.accuracy())) {
      absl::StrAppend(&training, ", accuracy ", FormatShare(job.accuracy()));
    }
    AddField(&text, "training", training);
  }
  AddField(&text, "staleness", DescribeStaleness(job.staleness_counts()));
  AddField(&text, "row cache", DescribeRows(job));
  if (job.best_epoch() > 0) AddField(&text, "best epoch", absl::StrCat(job.best_epoch()));
  AddField(&text, "restarts", absl::StrCat(job.restarts()));
  AddField(&text, "output", PathOn(job.output_host(), job.output_directory()));
  if (job.model_directory() != job.output_directory() || job.model_kept_until_unix_ms() != 0) {
    AddField(&text, "model", PathOn(job.output_host(), job.model_directory()));
  }
  AddField(&text, "saved in", PathOn(job.output_host(), job.saved_checkpoint()));
  if (job.model_kept_until_unix_ms() != 0) {
    AddField(&text, "kept until", TimeText(job.model_kept_until_unix_ms()));
  }
  if (job.tasks_size() > 0) absl::StrAppend(&text, "\n", TaskTable(job));
  if (job.results_size() > 0) absl::StrAppend(&text, "\n", ResultTable(job));
  if (job.events_size() > 0) absl::StrAppend(&text, "\n", EventTable(job));
  return text;
}

std::string EpochLine(const v1::EpochResult& result, const v1::JobStatus& job) {
  const v1::Objective objective = job.objective();
  std::string line = absl::StrCat("epoch ", result.epoch(), "/", job.epochs(), "  train loss ",
                                  FormatLoss(result.train_loss()));
  const auto add = [&line](bool there, absl::string_view name, const std::string& value) {
    if (there) absl::StrAppend(&line, "  ", name, " ", value);
  };
  add(HasAccuracy(objective), "train accuracy", TrainAccuracy(result, job));
  for (const auto& [name, value] : AllFigures(result.validation(), objective)) {
    add(result.has_validation(), absl::StrCat("validation ", name), value);
  }
  for (const auto& [name, value] : AllFigures(TestOf(result, job), objective)) {
    add(result.test_samples() > 0, absl::StrCat("test ", name), value);
  }
  add(result.learning_rate_factor() > 0, "rate", RateText(result));
  return absl::StrCat(line, "  ", DurationText(absl::Seconds(result.seconds())));
}

std::string EndSummary(const v1::JobStatus& job) {
  std::string text = absl::StrCat(job.job_id(), " ", StateName(job.state()));
  if (job.started_unix_ms() != 0) {
    absl::StrAppend(&text, " after ",
                    DurationText(RunTime(job, absl::FromUnixMillis(job.ended_unix_ms()))));
  }
  text += "\n";
  const auto add = [&](absl::string_view name, const std::string& value) {
    AddField(&text, name, value, "  ");
  };
  add("reason", DescribeFailure(job.failure()));
  if (job.failure().message() != job.detail()) add("detail", job.detail());
  if (const v1::EpochResult* tested = LastTested(job); tested != nullptr) {
    add("test", absl::StrCat(FigureLine(TestOf(*tested, job), job.objective()), ", epoch ",
                             tested->epoch()));
  }
  for (const v1::EpochResult& result : job.results()) {
    if (!result.has_validation() || result.epoch() != ModelEpoch(job)) continue;
    add("validation",
        absl::StrCat(FigureLine(result.validation(), job.objective()), ", epoch ", result.epoch()));
  }
  add("staleness", DescribeStaleness(job.staleness_counts()));
  add("row cache", DescribeRows(job));
  add("saved in", PathOn(job.output_host(), job.saved_checkpoint()));
  const bool has_model = job.state() == v1::SUCCEEDED || job.has_model();
  if (has_model && !job.output_directory().empty()) {
    const auto add_file = [&](absl::string_view name, const std::string& folder, const char* file) {
      add(name, PathOn(job.output_host(), absl::StrCat(folder, "/", file)));
    };
    const bool elsewhere = !job.model_directory().empty();
    add_file("model", elsewhere ? job.model_directory() : job.output_directory(),
             "model.safetensors");
    add_file("curve", job.output_directory(), "curve.svg");
    add_file("metrics", job.output_directory(), "metrics.jsonl");
  }
  if (job.state() == v1::FAILED) add("logs", absl::StrCat("capstan job logs ", job.job_id()));
  return text;
}

}  // namespace capstan::cli
