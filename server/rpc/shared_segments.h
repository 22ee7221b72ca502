// SharedSegments: the shared memory that callers of this server have offered, by name.
//
// Thread safety: thread-safe.
#ifndef CAPSTAN_SERVER_RPC_SHARED_SEGMENTS_H_
#define CAPSTAN_SERVER_RPC_SHARED_SEGMENTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/shared_memory/shared_segment.h"
#include "common/types/ids.h"
#include "proto/parameter_server.pb.h"

namespace capstan::server {

// The task that may use a segment.
struct SegmentOwner {
  JobId job;
  Rank rank;
  Incarnation incarnation;
};

class SharedSegments {
 public:
  static constexpr size_t kSegmentsMax = 4096;

  // Opens the segment that the caller offers. The response names it and proves that it is open.
  // Without an owner any caller that knows the name may use it.
  // Errors: those of SharedSegment::Open; kResourceExhausted  too many are open.
  absl::StatusOr<v1::ShareMemoryResponse> Open(const v1::ShareMemoryRequest& request,
                                               std::optional<SegmentOwner> owner = {});
  void Close(uint64_t name);  // Calls that use it may go on.

  // Null for the name 0, which means no segment.
  // Errors: kUnavailable       it is not open here (any more).
  //         kPermissionDenied  it is another task's than the caller's.
  absl::StatusOr<std::shared_ptr<SharedSegment>> Find(uint64_t name,
                                                      const v1::Caller& caller) const;
  size_t size() const;

 private:
  struct Entry {
    std::shared_ptr<SharedSegment> segment;  // Shared with the calls that use it.
    std::optional<SegmentOwner> owner;
  };

  mutable absl::Mutex mutex_;
  absl::flat_hash_map<uint64_t, Entry> segments_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_RPC_SHARED_SEGMENTS_H_
