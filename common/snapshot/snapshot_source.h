// SnapshotSource: the calls of a SnapshotReader to the scheduler and the servers.
//
// Thread safety: an implementation's.
#ifndef CAPSTAN_COMMON_SNAPSHOT_SNAPSHOT_SOURCE_H_
#define CAPSTAN_COMMON_SNAPSHOT_SNAPSHOT_SOURCE_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/parameter_server.pb.h"
#include "proto/scheduler.pb.h"
#include "proto/snapshot.pb.h"

namespace capstan {

class SnapshotSource {
 public:
  virtual ~SnapshotSource() = default;
  // Asks the scheduler. Errors: its own; kUnavailable, kDeadlineExceeded  it is not reached.
  virtual absl::StatusOr<v1::OpenSnapshotResponse> Open(const v1::OpenSnapshotRequest& request) = 0;
  // Asks a server. Errors: its own; kUnavailable, kDeadlineExceeded  it is not reached.
  virtual absl::StatusOr<v1::ReadSnapshotResponse> Read(const v1::ServerAddress& server,
                                                        const v1::ReadSnapshotRequest& request) = 0;
  virtual absl::Status Close(const v1::ServerAddress& server,
                             const v1::CloseSnapshotRequest& request) = 0;
  // Waits before something is asked again. Errors: the caller is to give up.
  virtual absl::Status Pause(absl::Duration time) = 0;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_SNAPSHOT_SNAPSHOT_SOURCE_H_
