// JobFilesService: the gRPC service through which daemons and tasks that share no folder with the
// scheduler's host write and read jobs' files there (proto/job_files.proto).
//
//   gRPC callback --> [ queue, at most kQueueMax ] --> one thread: check Rights -> ReceivedFiles
//
// Thread safety: thread-safe, except that one thread calls Start and Stop.
#ifndef CAPSTAN_SCHEDULER_FILES_JOB_FILES_SERVICE_H_
#define CAPSTAN_SCHEDULER_FILES_JOB_FILES_SERVICE_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "common/security/certificates/identity.h"
#include "common/storage/disk.h"
#include "common/time/clock.h"
#include "proto/job_files.grpc.pb.h"
#include "scheduler/files/received_files.h"
#include "scheduler/queues/serial_executor.h"

namespace capstan::scheduler {

class JobFilesService final : public v1::JobFiles::CallbackService {
 public:
  // The folders that clients may use now. The service's thread calls these functions. `caller`: the
  // identity that the gate has admitted; empty without credentials.
  struct Rights {
    using May =
        std::function<bool(const std::string& folder, const std::optional<Identity>& caller)>;
    May may_write;
    May may_read;
  };
  static constexpr size_t kQueueMax = 64;  // Calls of at most 1 MiB each; more get UNAVAILABLE.

  // `disk` and `clock` outlive the service.
  JobFilesService(Disk* disk, const Clock* clock, Rights rights);
  ~JobFilesService() override;  // Stops.

  void Start();
  void Stop();  // Answers all queued calls; later calls get UNAVAILABLE. Idempotent.

  grpc::ServerUnaryReactor* MarkFolder(grpc::CallbackServerContext* context,
                                       const v1::MarkFolderRequest* request,
                                       v1::MarkFolderResponse* response) override;
  grpc::ServerUnaryReactor* WritePiece(grpc::CallbackServerContext* context,
                                       const v1::WritePieceRequest* request,
                                       v1::WritePieceResponse* response) override;
  grpc::ServerUnaryReactor* FinishFile(grpc::CallbackServerContext* context,
                                       const v1::FinishFileRequest* request,
                                       v1::FinishFileResponse* response) override;
  grpc::ServerUnaryReactor* ReadPiece(grpc::CallbackServerContext* context,
                                      const v1::ReadPieceRequest* request,
                                      v1::ReadPieceResponse* response) override;

 private:
  using Caller = std::optional<Identity>;

  // Runs `work` on the service's thread, and finishes the call with its status.
  grpc::ServerUnaryReactor* Run(grpc::CallbackServerContext* context,
                                std::function<absl::Status(const Caller& caller)> work);
  absl::Status MayWrite(const std::string& folder, const Caller& caller) const;

  // Constant after construction.
  const Clock* const clock_;
  const Rights rights_;

  ReceivedFiles files_;  // Only the service's thread uses it.
  SerialExecutor thread_;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_FILES_JOB_FILES_SERVICE_H_
