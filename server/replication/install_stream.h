// InstallStream: receives a whole shard from its primary, in parts, over gRPC's callback API.
//
//   the job, and room for the request --> request bytes ... first piece or end
//                --> the shard is made aside --piece...--> end --> taken
//        '--breaks off, is damaged, cannot be, is not wanted--> nothing has changed
//
// Thread safety: gRPC calls one method at a time.
#ifndef CAPSTAN_SERVER_REPLICATION_INSTALL_STREAM_H_
#define CAPSTAN_SERVER_REPLICATION_INSTALL_STREAM_H_

#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "common/security/certificates/identity.h"
#include "proto/parameter_server.pb.h"
#include "server/engine/install_memory.h"
#include "server/engine/job/held_jobs.h"
#include "server/store/tables/table_shard.h"

namespace capstan::server {

// Owns itself until OnDone.
class InstallStream final : public grpc::ServerReadReactor<v1::InstallPart> {
 public:
  // Limit of everything but rows.
  static constexpr int64_t kRequestBytesMax = int64_t{1} << 30;

  // `caller`: the peer that the gate has admitted; it must be the sender. `jobs`, `response` and
  // `damaged`, which counts parts with a wrong checksum, outlive the stream.
  static InstallStream* Open(HeldJobs* jobs, std::optional<Identity> caller,
                             v1::ReplicateResponse* response, std::atomic<int64_t>* damaged);

  void OnReadDone(bool ok) override;
  void OnDone() override { delete this; }

 private:
  InstallStream(HeldJobs* jobs, std::optional<Identity> caller, v1::ReplicateResponse* response,
                std::atomic<int64_t>* damaged)
      : jobs_(jobs), caller_(std::move(caller)), response_(response), damaged_(damaged) {}

  absl::Status Take();   // Handles the part that has arrived.
  absl::Status Enter();  // Handles the head of the first part.
  absl::Status Begin();  // Parses the request, which is whole.
  void Install();

  HeldJobs* const jobs_;
  const std::optional<Identity> caller_;
  v1::ReplicateResponse* const response_;
  std::atomic<int64_t>* const damaged_;
  v1::InstallPart part_;
  int64_t request_bytes_ = 0;           // The announced size.
  InstallMemory::Share memory_;         // The memory of the request's bytes and strings,
  InstallMemory::Share parsed_memory_;  // and of all else that is parsed from them.
  std::string bytes_;                   // The request's bytes until it is whole.
  std::unique_ptr<v1::ReplicateRequest> request_;
  std::shared_ptr<HeldJob> job_;  // Shared with HeldJobs, which may drop it meanwhile.
  std::optional<TableShard> made_;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_REPLICATION_INSTALL_STREAM_H_
