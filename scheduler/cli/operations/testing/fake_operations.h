// FakeOperations: a fake Scheduler service on a loopback port for tests of the command line. It
// answers drains, checkpoints and submissions with given answers, and records the requests.
//
// Thread safety: thread-safe.
#ifndef CAPSTAN_SCHEDULER_CLI_OPERATIONS_TESTING_FAKE_OPERATIONS_H_
#define CAPSTAN_SCHEDULER_CLI_OPERATIONS_TESTING_FAKE_OPERATIONS_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/net/grpc/grpc_server.h"
#include "proto/scheduler.grpc.pb.h"

namespace capstan::cli {

class FakeOperations final : public v1::Scheduler::Service {
 public:
  struct Answers {
    // Calls get the answers in order, then the last one again. Drains are of the node "server-1".
    std::vector<v1::DrainNodeResponse> drains;
    std::vector<v1::SaveCheckpointResponse> saved;
    std::function<void()> on_drain = [] {};   // Runs before each answer to a drain.
    std::function<void()> on_submit = [] {};  // Runs before each answer to a submission.
    // The calls that get UNAVAILABLE. Drains, checkpoints and submissions are each counted from 0.
    std::set<size_t> away;
  };
  explicit FakeOperations(Answers answers);

  const std::string& address() const { return server_->address(); }
  std::vector<v1::DrainNodeRequest> drain_requests() const ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<v1::SaveCheckpointRequest> save_requests() const ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<v1::SubmitJobRequest> submit_requests() const ABSL_LOCKS_EXCLUDED(mutex_);

  grpc::Status DrainNode(grpc::ServerContext* context, const v1::DrainNodeRequest* request,
                         v1::DrainNodeResponse* response) override;
  grpc::Status SaveCheckpoint(grpc::ServerContext* context,
                              const v1::SaveCheckpointRequest* request,
                              v1::SaveCheckpointResponse* response) override;
  grpc::Status SubmitJob(grpc::ServerContext* context, const v1::SubmitJobRequest* request,
                         v1::SubmitJobResponse* response) override;

 private:
  // Answers the call with number `call`.
  template <typename Response>
  grpc::Status Play(const std::vector<Response>& answers, size_t call, Response* response) const;

  const Answers answers_;
  mutable absl::Mutex mutex_;
  std::vector<v1::DrainNodeRequest> drain_requests_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::SaveCheckpointRequest> save_requests_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::SubmitJobRequest> submit_requests_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<GrpcServer> server_;  // Declared last, because it calls the rest until its end.
};

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_OPERATIONS_TESTING_FAKE_OPERATIONS_H_
