// ParameterService: the data plane over gRPC's callback API, and over data connections where it
// listens for them; a thin shell around HeldJobs.
//
// No call holds a thread: one that waits is an entry in its HeldJob, and is forgotten when its
// caller cancels. Answers are sent outside the jobs' mutexes. Calls with values are handled in the
// same way over both (value_calls.h); data connections copy none of them.
// Thread safety: thread-safe.
#ifndef CAPSTAN_SERVER_RPC_PARAMETER_SERVICE_H_
#define CAPSTAN_SERVER_RPC_PARAMETER_SERVICE_H_

#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "common/net/data/data_server.h"
#include "common/net/grpc/credentials.h"
#include "common/security/audit_log.h"
#include "common/security/certificates/identity.h"
#include "proto/parameter_server.grpc.pb.h"
#include "server/engine/job/held_jobs.h"
#include "server/rpc/call_rights.h"
#include "server/rpc/segment_streams.h"
#include "server/rpc/shared_segments.h"
#include "server/rpc/traffic_metrics.h"
#include "server/rpc/value_calls.h"

namespace capstan::server {

// Calls with values or records come as bytes, whose entries are counted before they are parsed.
using Descriptions = v1::ParameterServer::WithCallbackMethod_GetRouting<
    v1::ParameterServer::WithCallbackMethod_DescribeTraffic<
        v1::ParameterServer::WithCallbackMethod_DescribeTables<v1::ParameterServer::Service>>>;
using Snapshots = v1::ParameterServer::WithCallbackMethod_ReadSnapshot<
    v1::ParameterServer::WithCallbackMethod_CloseSnapshot<Descriptions>>;
using Replication = v1::ParameterServer::WithRawCallbackMethod_Replicate<
    v1::ParameterServer::WithCallbackMethod_Install<Snapshots>>;
using MessageMethods = v1::ParameterServer::WithCallbackMethod_ScanRows<
    v1::ParameterServer::WithCallbackMethod_ShareMemory<
        v1::ParameterServer::WithCallbackMethod_OpenDataConnections<Replication>>>;
using ParameterMethods = v1::ParameterServer::WithRawCallbackMethod_Push<
    v1::ParameterServer::WithRawCallbackMethod_Pull<MessageMethods>>;

class ParameterService final : public ParameterMethods {
 public:
  // The jobs outlive the service.
  explicit ParameterService(HeldJobs* jobs, CallRights::Options rights = {});
  ~ParameterService() override;

  grpc::ServerUnaryReactor* Push(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Pull(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ScanRows(grpc::CallbackServerContext* context,
                                     const v1::ScanRowsRequest* request,
                                     v1::ScanRowsResponse* response) override;
  grpc::ServerUnaryReactor* ReadSnapshot(grpc::CallbackServerContext* context,
                                         const v1::ReadSnapshotRequest* request,
                                         v1::ReadSnapshotResponse* response) override;
  grpc::ServerUnaryReactor* CloseSnapshot(grpc::CallbackServerContext* context,
                                          const v1::CloseSnapshotRequest* request,
                                          v1::CloseSnapshotResponse* response) override;
  grpc::ServerUnaryReactor* Replicate(grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* request,
                                      grpc::ByteBuffer* response) override;
  grpc::ServerReadReactor<v1::InstallPart>* Install(grpc::CallbackServerContext* context,
                                                    v1::ReplicateResponse* response) override;
  grpc::ServerWriteReactor<v1::ShareMemoryResponse>* ShareMemory(
      grpc::CallbackServerContext* context, const v1::ShareMemoryRequest* request) override;
  grpc::ServerUnaryReactor* OpenDataConnections(grpc::CallbackServerContext* context,
                                                const v1::OpenDataConnectionsRequest* request,
                                                v1::OpenDataConnectionsResponse* response) override;
  grpc::ServerUnaryReactor* GetRouting(grpc::CallbackServerContext* context,
                                       const v1::GetRoutingRequest* request,
                                       v1::GetRoutingResponse* response) override;
  grpc::ServerUnaryReactor* DescribeTraffic(grpc::CallbackServerContext* context,
                                            const v1::DescribeTrafficRequest* request,
                                            v1::DescribeTrafficResponse* response) override;
  grpc::ServerUnaryReactor* DescribeTables(grpc::CallbackServerContext* context,
                                           const v1::DescribeTablesRequest* request,
                                           v1::DescribeTablesResponse* response) override;

  // Listens for data connections, and returns `host` as their host to callers of
  // OpenDataConnections; empty: the one at which they reach this service. A worker pushes by
  // `push_connections`, each of which has a thread here. REQUIRES: called once, before calls come.
  // Null credentials: plain text. `audit`: see DataServer::Options.
  // Errors: those of DataServer::Start.
  absl::Status ListenForData(const std::string& listen, const std::string& host = "",
                             int push_connections = 1, const Credentials* credentials = nullptr,
                             AuditLog* audit = nullptr);
  // Closes the data connections; their callers continue over gRPC. Calls that came over them have
  // ended when it returns.
  void CloseDataConnections();

  // Closes all shared memory and accepts no more: its callers then send values in messages.
  void CloseSegments() { streams_.Close(); }
  size_t segments() const { return segments_.size(); }  // Open now.

 private:
  using ReplicateDone = std::function<void(absl::StatusOr<v1::ReplicateBatchAnswer>)>;

  using Caller = std::optional<Identity>;  // Empty: the server authenticates nobody.

  // The job that a call over gRPC names, if its caller may read it and make this use of it.
  absl::StatusOr<std::shared_ptr<HeldJob>> FindJob(const grpc::CallbackServerContext& context,
                                                   const JobId& job,
                                                   const CapabilityUse& use) const;
  absl::StatusOr<std::optional<SegmentOwner>> OwnerOf(
      const grpc::CallbackServerContext& context) const;
  absl::StatusOr<DataServer::Admitted> AdmitConnection(const std::string& capability,
                                                       const Caller& caller);
  // Starts a call over a data connection, whose frames have been checked. `verified`: the
  // capability with which the connection was opened; null: none.
  DataServer::Cancel StartDataCall(const VerifiedCapability* verified, const Caller& caller,
                                   DataMethod method, const absl::Cord& request,
                                   DataServer::Done done);
  // The pull that `request` is, if the caller may read its job.
  absl::StatusOr<v1::PullRequest> ReadablePull(const absl::Cord& request,
                                               const Caller& caller) const;
  // Calls ReplicaCalls::ReplicateBatch of the batch's job, if the caller is the sender of all
  // messages.
  void ReplicateBatch(const v1::ReplicateBatch& batch, const Caller& caller, ReplicateDone done);

  std::atomic<int64_t> damaged_messages_ = 0;  // Damaged messages of replication.
  HeldJobs* const jobs_;
  const CallRights rights_;
  TrafficMetrics metrics_;
  SharedSegments segments_;
  SegmentStreams streams_{&segments_};
  ValueCalls calls_{&rights_, &segments_, &metrics_};
  std::string data_host_;
  int push_connections_ = 1;
  std::unique_ptr<DataServer> data_server_;  // Null: it does not listen.
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_RPC_PARAMETER_SERVICE_H_
