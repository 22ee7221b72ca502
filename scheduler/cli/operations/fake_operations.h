// FakeOperations: drains, checkpoints and submissions of the Scheduler service on a loopback port,
// for tests of the command line: gives the answers that it is told and notes what it was asked.
//
// Thread safety: thread-safe.
#ifndef CAPSTAN_SCHEDULER_CLI_OPERATIONS_FAKE_OPERATIONS_H_
#define CAPSTAN_SCHEDULER_CLI_OPERATIONS_FAKE_OPERATIONS_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_set.h"
#include "absl/synchronization/mutex.h"
#include "common/net/grpc_server.h"
#include "proto/scheduler.grpc.pb.h"

namespace capstan::cli {

class FakeOperations final : public v1::Scheduler::Service {
 public:
  struct Answers {
    // Each once, then the last one again and again. Drains: of the node "server-1".
    std::vector<v1::DrainNodeResponse> drains;
    std::vector<v1::SaveCheckpointResponse> saved;
    std::function<void()> on_drain = [] {};  // Before each answer to a drain.
    // Numbers of calls, from 0, that find nobody (UNAVAILABLE): of drains, of checkpoints,
    // and of submissions.
    absl::btree_set<size_t> away;
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
  // What the call of this number gets.
  template <typename Response>
  grpc::Status Play(const std::vector<Response>& answers, size_t call, Response* response) const;

  const Answers answers_;
  mutable absl::Mutex mutex_;
  std::vector<v1::DrainNodeRequest> drain_requests_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::SaveCheckpointRequest> save_requests_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::SubmitJobRequest> submit_requests_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<GrpcServer> server_;  // Last: it calls the rest until it is gone.
};

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_OPERATIONS_FAKE_OPERATIONS_H_
