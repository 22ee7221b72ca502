// ParameterService: the data plane over gRPC's callback API; a thin shell around HeldJobs.
//
// No call holds a thread: one that waits is an entry in its HeldJob, and is forgotten when its
// caller cancels. Answers are sent outside the jobs' mutexes.
// Thread safety: thread-safe.
#ifndef CAPSTAN_SERVER_SERVICE_PARAMETER_SERVICE_H_
#define CAPSTAN_SERVER_SERVICE_PARAMETER_SERVICE_H_

#include <grpcpp/support/server_callback.h>

#include <memory>

#include "proto/parameter_server.grpc.pb.h"
#include "server/service/held_jobs.h"

namespace capstan::server {

class ParameterService final : public v1::ParameterServer::CallbackService {
 public:
  explicit ParameterService(HeldJobs* jobs);  // They outlive the service.
  ~ParameterService() override;

  grpc::ServerUnaryReactor* Push(grpc::CallbackServerContext* context,
                                 const v1::PushRequest* request,
                                 v1::PushResponse* response) override;
  grpc::ServerUnaryReactor* Pull(grpc::CallbackServerContext* context,
                                 const v1::PullRequest* request,
                                 v1::PullResponse* response) override;
  grpc::ServerUnaryReactor* PushPull(grpc::CallbackServerContext* context,
                                     const v1::PushPullRequest* request,
                                     v1::PushPullResponse* response) override;
  grpc::ServerUnaryReactor* Replicate(grpc::CallbackServerContext* context,
                                      const v1::ReplicateRequest* request,
                                      v1::ReplicateResponse* response) override;
  grpc::ServerUnaryReactor* GetRouting(grpc::CallbackServerContext* context,
                                       const v1::GetRoutingRequest* request,
                                       v1::GetRoutingResponse* response) override;
  grpc::ServerUnaryReactor* DescribeTables(grpc::CallbackServerContext* context,
                                           const v1::DescribeTablesRequest* request,
                                           v1::DescribeTablesResponse* response) override;

 private:
  struct Allocators;

  HeldJobs* const jobs_;
  const std::unique_ptr<Allocators> allocators_;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_SERVICE_PARAMETER_SERVICE_H_
