// ValueCall: one call with values to a server, by a data connection or by gRPC, with one interface
// for both.
//
// Thread safety: thread-safe. The object must not move, and outlives its call.
#ifndef CAPSTAN_WORKER_CLIENT_VALUE_CALL_H_
#define CAPSTAN_WORKER_CLIENT_VALUE_CALL_H_

#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include <functional>
#include <memory>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/net/data_caller.h"
#include "common/net/frame_reader.h"
#include "common/wire/tensor_message.h"
#include "proto/parameter_server.grpc.pb.h"

namespace capstan::worker {

class ValueCall {
 public:
  using Answer = std::variant<v1::PushResponse, PullAnswer>;
  // Called once, on a thread of the connection, under no lock.
  using Done = std::function<void(absl::StatusOr<Answer>)>;

  struct Request {
    std::variant<PushMessage, v1::PullRequest> message;
    // Data connections use these three fields: see DataCaller::Request.
    absl::Duration timeout;
    absl::Duration patience;
    std::shared_ptr<PayloadPlaces> places = nullptr;
    absl::Duration grpc_timeout;  // The deadline over gRPC, which does not use places.
  };
  // Starts it over `data`, if that is not null and still open, else over `grpc`. Returns true if it
  // goes over `data`. REQUIRES: called once. Errors, to `done`: kInvalidArgument, kInternal  the
  // server's answer cannot be decoded; kUnavailable  the answer was damaged on its way.
  bool Start(std::shared_ptr<DataCaller> data, v1::ParameterServer::Stub& grpc, Request request,
             Done done);
  // Makes it end with kCancelled soon, unless it has ended. May be called before Start.
  void Cancel();

 private:
  bool StartData(std::shared_ptr<DataCaller> data, const Request& request, const Done& done);
  template <typename Response>
  std::function<void(grpc::Status)> OnGrpcDone(Response* response, Done done);

  grpc::ClientContext context_;
  v1::PushRequest push_;
  v1::PushResponse pushed_;
  v1::PullRequest pull_;
  v1::PullResponse pulled_;
  absl::Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<DataCaller> data_ ABSL_GUARDED_BY(mutex_);  // Null: over gRPC, or not begun.
  DataCaller::CallId id_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_CLIENT_VALUE_CALL_H_
