#include "scheduler/cli/job/submit.h"

#include <cstdint>
#include <cstdio>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job/check/check_job.h"
#include "common/job/parse/job_file.h"
#include "common/job/validate/validate.h"
#include "common/observability/printable.h"
#include "common/status/status_macros.h"
#include "scheduler/cli/console/console.h"
#include "scheduler/cli/console/exit_code.h"
#include "scheduler/cli/console/interrupts.h"
#include "scheduler/cli/view/job_view.h"
#include "scheduler/cli/view/text/format.h"

namespace capstan::cli {
namespace {

// Returns a random id. It is never 0, which means "no id".
uint64_t RandomId() {
  std::random_device device;
  uint64_t id = 0;
  while (id == 0) id = uint64_t{device()} << 32 | device();
  return id;
}

void TellWarnings(const v1::SubmitJobResponse& submitted) {
  for (const std::string& warning : submitted.warnings()) {
    Note(absl::StrCat("warning: ", submitted.job_id(), ": ", warning));
  }
}

}  // namespace

void AddJobSource(Command command, JobSource* source) {
  command.AddOption("FILE", source->file, "Job file: protobuf text format or JSON").Required();
  command
      .AddOption("--base", source->base,
                 "Another job file, whose fields hold where FILE has none; of a list that both "
                 "have, FILE's counts")
      .ValueName("FILE");
  command.AddOption("--set", source->overrides, "Override a field: FIELD=VALUE; may be repeated")
      .ValueName("FIELD=VALUE")
      .OneValueEach();
}

absl::StatusOr<v1::JobSpec> LoadCheckedJob(const JobSource& source, DataCheck data_check) {
  CAPSTAN_ASSIGN_OR_RETURN(JobFile file, JobFile::Load(source.file));
  if (!source.base.empty()) {
    CAPSTAN_ASSIGN_OR_RETURN(const JobFile base, JobFile::Load(source.base));
    file.FillIn(base);
  }
  for (const std::string& assignment : source.overrides) {
    CAPSTAN_RETURN_IF_ERROR(file.Set(assignment));
  }
  CAPSTAN_RETURN_IF_ERROR(file.Refusal(
      data_check == DataCheck::kDo ? CheckJob(file.spec()).diagnostics : ValidateJob(file.spec())));
  return file.spec();
}

int FailJobFile(const absl::Status& status) {
  const std::string message =
      Printable({status.message().data(), status.message().size()}, Lines::kMany);
  std::fprintf(stderr, "%s\ncapstan: the job was not submitted\n", message.c_str());
  return ExitCodeOf(status);
}

absl::StatusOr<v1::SubmitJobResponse> SubmitPatiently(SchedulerClient& scheduler,
                                                      v1::SubmitJobRequest request,
                                                      AfterSignal after_signal,
                                                      Patience::Options options) {
  Patience patience(scheduler.address(), std::move(options));
  request.set_submission_id(RandomId());
  if (Interrupts::Signal() != 0) return absl::CancelledError("the job was not submitted");
  while (Interrupts::Signal() == 0) {
    auto submitted = scheduler.SubmitJob(request);
    if (patience.AsksAgain(submitted.status())) continue;
    if (absl::IsCancelled(submitted.status()) && Interrupts::Signal() != 0) break;
    if (submitted.ok()) TellWarnings(*submitted);
    return submitted;
  }
  if (after_signal == AfterSignal::kStopJob) {
    Note("asks the scheduler for the job, to stop it");
    auto submitted = scheduler.SubmitJob(request, kCallTimeout);
    if (submitted.ok()) return submitted;
  }
  return absl::CancelledError("nobody has said whether the job was taken: see capstan job list");
}

int FailSubmission(const absl::Status& status) {
  const int code = Fail(status);
  return Interrupts::Signal() == 0 ? code : kExitSignal + Interrupts::Signal();
}

int FollowToEnd(SchedulerClient& scheduler, const std::string& job_id, OutputFormat format,
                AfterSignal after_signal, Show show) {
  const bool json = format == OutputFormat::kJson;
  if (json && show != Show::kChanges) show = Show::kNothing;
  const absl::StatusOr<v1::JobStatus> job = FollowJob(scheduler, job_id, {.show = show});
  if (job.ok()) {
    if (show != Show::kChanges) Print(json ? ToJson(*job) : EndSummary(*job));
    return JobExitCode(*job);
  }
  if (!absl::IsCancelled(job.status())) return Fail(job.status());
  if (after_signal == AfterSignal::kStopJob) {
    const auto stopped = scheduler.StopJob(job_id);
    const std::string end = stopped.ok() ? absl::StrCat(job_id, " ", StateName(stopped->state()))
                                         : std::string(stopped.status().message());
    std::fprintf(stderr, "\n%s\n", Printable(end).c_str());
  } else {
    const std::string id = Printable(job_id);
    std::fprintf(stderr,
                 "\n%s goes on. Follow it again: capstan job watch %s\n"
                 "Stop it: capstan job stop %s\n",
                 id.c_str(), id.c_str(), id.c_str());
  }
  return kExitSignal + Interrupts::Signal();
}

}  // namespace capstan::cli
