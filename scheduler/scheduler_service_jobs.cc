// The calls about what is remembered of jobs: deleting them, labels and notes.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/job/diagnostic.h"
#include "common/job/labels.h"
#include "scheduler/admitted_codec.h"
#include "scheduler/scheduler_service.h"
#include "scheduler/scheduler_service_answers.h"

namespace capstan::scheduler {

grpc::ServerUnaryReactor* SchedulerService::DeleteJob(grpc::CallbackServerContext* context,
                                                      const v1::DeleteJobRequest* request,
                                                      v1::DeleteJobResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  absl::MutexLock lock(&mutex_);
  absl::Status status = Running();
  Actions actions;
  if (status.ok()) {
    if (const auto job = jobs_.find(request->job_id()); job != jobs_.end()) {
      response->set_output_directory(job->second->output_directory);
      response->set_output_host(hostname_);
    }
    status = core_->DeleteJob(request->job_id(), clock_->Now(), actions);
  }
  Commit(std::move(actions), {.done = {{reactor, status, /*after_files=*/true}}});
  return reactor;
}

absl::Status SchedulerService::Annotate(const v1::AnnotateJobRequest& request,
                                        v1::AnnotateJobResponse& response,
                                        std::vector<StoreWrite>& writes) {
  const auto found = jobs_.find(request.job_id());
  if (found == jobs_.end()) {
    return absl::NotFoundError(absl::StrCat("there is no job \"", request.job_id(), "\""));
  }
  auto job = std::make_shared<AdmittedJob>(*found->second);
  auto& labels = *job->submitted.mutable_labels();
  for (const auto& [key, value] : request.set_labels()) labels[key] = value;
  for (const std::string& key : request.remove_labels()) labels.erase(key);
  if (request.has_note()) job->submitted.set_note(request.note());
  std::vector<Diagnostic> wrong;
  ValidateLabels(labels, job->submitted.note(), FieldChecker("", &wrong));
  if (!wrong.empty()) {
    return absl::InvalidArgumentError(
        absl::StrJoin(wrong, "\n", [](std::string* out, const Diagnostic& diagnostic) {
          out->append(diagnostic.ToString());
        }));
  }
  *response.mutable_labels() = labels;
  response.set_note(job->submitted.note());
  writes.push_back(EncodeAdmitted(*job));
  found->second = std::move(job);
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* SchedulerService::AnnotateJob(grpc::CallbackServerContext* context,
                                                        const v1::AnnotateJobRequest* request,
                                                        v1::AnnotateJobResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  absl::MutexLock lock(&mutex_);
  absl::Status status = Running();
  std::vector<StoreWrite> writes;
  if (status.ok()) status = Annotate(*request, *response, writes);
  Commit({}, {.done = {{reactor, status}}}, std::move(writes));
  return reactor;
}

}  // namespace capstan::scheduler
