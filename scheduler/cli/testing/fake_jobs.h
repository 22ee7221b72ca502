// FakeJobs: a fake Scheduler service on a loopback port for tests of the command line. It answers
// users' calls with a list of statuses of one job.
//
// Thread safety: thread-safe.
#ifndef CAPSTAN_SCHEDULER_CLI_TESTING_FAKE_JOBS_H_
#define CAPSTAN_SCHEDULER_CLI_TESTING_FAKE_JOBS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/net/grpc/grpc_server.h"
#include "proto/scheduler.grpc.pb.h"

namespace capstan::cli {

class FakeJobs final : public v1::Scheduler::Service {
 public:
  // GetJob answers with `statuses` in order, then repeats the last one.
  // `on_call` runs before each answer, with the number of the call from 0.
  explicit FakeJobs(
      std::vector<v1::JobStatus> statuses, std::function<void(int call)> on_call = [](int) {});

  const std::string& address() const { return server_->address(); }
  std::vector<std::string> stopped() const ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<v1::GetJobRequest> requests() const ABSL_LOCKS_EXCLUDED(mutex_);

  grpc::Status GetJob(grpc::ServerContext* context, const v1::GetJobRequest* request,
                      v1::GetJobResponse* response) override;
  grpc::Status StopJob(grpc::ServerContext* context, const v1::StopJobRequest* request,
                       v1::StopJobResponse* response) override;

 private:
  const std::vector<v1::JobStatus> statuses_;
  const std::function<void(int call)> on_call_;
  mutable absl::Mutex mutex_;
  std::vector<v1::GetJobRequest> requests_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> stopped_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<GrpcServer> server_;  // Declared last, because it calls the rest until its end.
};

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_TESTING_FAKE_JOBS_H_
