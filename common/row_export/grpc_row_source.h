// GrpcRowSource: asks servers for rows over gRPC, one call at a time.
//
// Thread safety: thread-safe; the calls of RowSource are meant for one thread.
#ifndef CAPSTAN_COMMON_ROW_EXPORT_GRPC_ROW_SOURCE_H_
#define CAPSTAN_COMMON_ROW_EXPORT_GRPC_ROW_SOURCE_H_

#include <grpcpp/client_context.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/net/grpc/credentials.h"
#include "common/row_export/table_scan.h"
#include "proto/parameter_server.grpc.pb.h"

namespace capstan {

class GrpcRowSource final : public RowSource {
 public:
  struct Options {
    // Answers RowSource::NewestRouting: asks the scheduler, or returns the last one that a task
    // got.
    std::function<absl::StatusOr<v1::RoutingTable>()> newest_routing;
    absl::Duration call_timeout = absl::Seconds(15);
    const Credentials* credentials = nullptr;  // Null: plain text. Outlives the source.
    // The newest capability for the job (common/security/capability.h); null: there is none.
    std::function<std::string()> capability = nullptr;
  };
  explicit GrpcRowSource(Options options) : options_(std::move(options)) {}

  // A server's channel is made as it is first asked, and kept.
  absl::StatusOr<v1::ScanRowsResponse> ScanRows(const v1::ServerAddress& server,
                                                const v1::ScanRowsRequest& request) override;
  absl::StatusOr<v1::RoutingTable> NewestRouting() override { return options_.newest_routing(); }
  absl::Status Pause(absl::Duration time) override;

  // Ends the call in flight, a pause, and all later ones with kCancelled. Any thread may call it.
  void Interrupt();

 private:
  const Options options_;
  // Keyed by node and address.
  std::map<std::pair<std::string, std::string>, std::unique_ptr<v1::ParameterServer::Stub>> stubs_;
  absl::Mutex mutex_;
  bool interrupted_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* in_flight_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_ROW_EXPORT_GRPC_ROW_SOURCE_H_
