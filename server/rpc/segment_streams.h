// SegmentStreams: the streams that keep callers' shared memory open, over gRPC's callback API.
//
//   ShareMemory --opened--> response --> open --caller gone, Close--> ended, segment closed
//        '--refused--> ended
//
// Thread safety: thread-safe.
#ifndef CAPSTAN_SERVER_RPC_SEGMENT_STREAMS_H_
#define CAPSTAN_SERVER_RPC_SEGMENT_STREAMS_H_

#include <grpcpp/support/server_callback.h>

#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "proto/parameter_server.pb.h"
#include "server/rpc/shared_segments.h"

namespace capstan::server {

class SegmentStreams {
 public:
  using Reactor = grpc::ServerWriteReactor<v1::ShareMemoryResponse>;

  explicit SegmentStreams(SharedSegments* segments) : segments_(segments) {}  // They outlive it.

  // `owner`: who may use the segment, or the error that the caller gets.
  // REQUIRES: the streams outlive the server that calls it.
  Reactor* Open(const v1::ShareMemoryRequest& request,
                absl::StatusOr<std::optional<SegmentOwner>> owner);
  // Ends all streams, so that a server that stops does not wait for them; later ones are refused.
  void Close();

 private:
  class Stream;
  void Forget(const std::shared_ptr<Stream>& stream);

  SharedSegments* const segments_;
  absl::Mutex mutex_;
  absl::flat_hash_set<std::shared_ptr<Stream>> streams_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_RPC_SEGMENT_STREAMS_H_
