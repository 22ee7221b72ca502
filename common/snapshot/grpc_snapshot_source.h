// GrpcSnapshotSource: asks the scheduler and servers over gRPC.
//
// Thread safety: thread-compatible, except for Interrupt; each reader has its own.
#ifndef CAPSTAN_COMMON_SNAPSHOT_GRPC_SNAPSHOT_SOURCE_H_
#define CAPSTAN_COMMON_SNAPSHOT_GRPC_SNAPSHOT_SOURCE_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/net/grpc/credentials.h"
#include "common/security/renewed_capability.h"
#include "common/snapshot/snapshot_source.h"
#include "proto/parameter_server.grpc.pb.h"
#include "proto/scheduler.grpc.pb.h"

namespace capstan {

class GrpcSnapshotSource final : public SnapshotSource {
 public:
  struct Options {
    std::string scheduler;                           // host:port
    absl::Duration call_timeout = absl::Seconds(5);  // Added to the wait of Open.
    absl::Duration close_timeout = absl::Seconds(1);
    const Credentials* credentials = nullptr;  // Null: plain text. Outlives the source.
    // The caller's newest capability, if it is a task of the job (common/security/capability.h).
    // Null: it is none, and shows the snapshot's, which is asked for again before it ends.
    std::function<std::string()> capability = nullptr;
  };
  explicit GrpcSnapshotSource(Options options) : options_(std::move(options)) {}

  absl::StatusOr<v1::OpenSnapshotResponse> Open(const v1::OpenSnapshotRequest& request) override;
  // A server's channel is made as it is first asked, and kept.
  absl::StatusOr<v1::ReadSnapshotResponse> Read(const v1::ServerAddress& server,
                                                const v1::ReadSnapshotRequest& request) override;
  absl::Status Close(const v1::ServerAddress& server,
                     const v1::CloseSnapshotRequest& request) override;
  absl::Status Pause(absl::Duration time) override;

  // Ends a pause, and all later ones, with kCancelled. Any thread may call it.
  void Interrupt();

 private:
  v1::ParameterServer::Stub& StubOf(const v1::ServerAddress& server);
  std::string CapabilityToShow();
  absl::StatusOr<std::string> AskForCapability(const std::string& job_id);

  const Options options_;
  absl::Mutex mutex_;
  bool interrupted_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<v1::Scheduler::Stub> scheduler_;  // Null until it is asked.
  std::optional<RenewedCapability> capability_;     // The last snapshot's. None: not open yet.
  // Keyed by node and address.
  std::map<std::pair<std::string, std::string>, std::unique_ptr<v1::ParameterServer::Stub>> stubs_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_SNAPSHOT_GRPC_SNAPSHOT_SOURCE_H_
