// ValueCalls: carries out Push and Pull, over gRPC and data connections. Gradients are read where
// they were received; an answer lends the parameters instead of copying them. A caller on this host
// may leave values in memory that it shares instead.
//
// Thread safety: thread-safe.
#ifndef CAPSTAN_SERVER_RPC_VALUE_CALLS_H_
#define CAPSTAN_SERVER_RPC_VALUE_CALLS_H_

#include <functional>

#include "absl/status/statusor.h"
#include "common/wire/tensor_message.h"
#include "proto/parameter_server.pb.h"
#include "server/rpc/call_rights.h"
#include "server/rpc/shared_segments.h"
#include "server/rpc/traffic_metrics.h"

namespace capstan::server {

class ValueCalls {
 public:
  // Called exactly once per call, from any thread, under no lock.
  template <typename Answer>
  using Done = std::function<void(absl::StatusOr<Answer>)>;
  // Ends a call that waits, with kCancelled; does nothing if it has ended.
  using Cancel = std::function<void()>;

  // All outlive the calls.
  ValueCalls(const CallRights* rights, const SharedSegments* segments, TrafficMetrics* metrics)
      : rights_(rights), segments_(segments), metrics_(metrics) {}

  // Carry the request out; if it could not be read, pass that error to `done`. Return a function
  // that cancels the call; null if it has ended. Errors (to `done`): those of CallRights, JobCalls
  // and SharedSegments.
  Cancel Push(TransportKind transport, const ShownCapability& shown,
              absl::StatusOr<PushMessage> push, Done<v1::PushResponse> done);
  Cancel Pull(TransportKind transport, const ShownCapability& shown,
              const absl::StatusOr<v1::PullRequest>& pull, Done<PullAnswer> done);

 private:
  const CallRights* const rights_;
  const SharedSegments* const segments_;
  TrafficMetrics* const metrics_;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_RPC_VALUE_CALLS_H_
