// ValueCall: one call with values to a server, by a data connection or by gRPC: bytes out, bytes
// back. Whoever makes the call does not know which.
//
// Thread safety: thread-safe. Stays where it is, and outlives its call.
#ifndef CAPSTAN_WORKER_CLIENT_VALUE_CALL_H_
#define CAPSTAN_WORKER_CLIENT_VALUE_CALL_H_

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/net/data_caller.h"

namespace capstan::worker {

class ValueCall {
 public:
  // Called once, on a thread of the connection, under no lock.
  using Done = std::function<void(absl::StatusOr<absl::Cord>)>;

  // Starts it over `data`, if that is not null and still open, else over `grpc`, which knows no
  // places, and whose deadline stands, `grpc_timeout` from now. True: it goes over `data`.
  // REQUIRES: once.
  bool Start(std::shared_ptr<DataCaller> data, grpc::GenericStub& grpc,
             const DataCaller::Request& request, absl::Duration grpc_timeout, Done done);
  // Ends it with kCancelled, soon, unless it has ended. May come before Start.
  void Cancel();

 private:
  grpc::ClientContext context_;
  grpc::ByteBuffer request_, response_;
  absl::Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<DataCaller> data_ ABSL_GUARDED_BY(mutex_);  // Null: it is gRPC's, or not begun.
  DataCaller::CallId id_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_CLIENT_VALUE_CALL_H_
