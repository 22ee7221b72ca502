// UploadsService: the gRPC service to which users send files for a job that they are about to
// submit (proto/uploads.proto).
//
//   gRPC callback --> [ queue, at most kQueueMax ] --> one thread: ReceivedFiles
//
// It has a thread of its own, so that users' files do not delay those of running jobs.
// Thread safety: thread-safe, except that one thread calls Start and Stop.
#ifndef CAPSTAN_SCHEDULER_FILES_UPLOADS_SERVICE_H_
#define CAPSTAN_SCHEDULER_FILES_UPLOADS_SERVICE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "common/storage/disk.h"
#include "common/time/clock.h"
#include "proto/uploads.grpc.pb.h"
#include "scheduler/files/received_files.h"
#include "scheduler/queues/serial_executor.h"

namespace capstan::scheduler {

class UploadsService final : public v1::Uploads::CallbackService {
 public:
  static constexpr size_t kQueueMax = 16;  // Calls of at most 1 MiB each; more get UNAVAILABLE.
  static constexpr int64_t kFileBytesMax = int64_t{16} << 30;
  static constexpr size_t kNameBytesMax = 200;

  // `disk` and `clock` outlive the service.
  UploadsService(std::string data_folder, Disk* disk, const Clock* clock);
  ~UploadsService() override;  // Stops.

  void Start();
  void Stop();  // Answers all queued calls; later calls get UNAVAILABLE. Idempotent.

  grpc::ServerUnaryReactor* WritePiece(grpc::CallbackServerContext* context,
                                       const v1::UploadPieceRequest* request,
                                       v1::UploadPieceResponse* response) override;
  grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context,
                                   const v1::FinishUploadRequest* request,
                                   v1::FinishUploadResponse* response) override;

 private:
  // Runs `work` with the caller's folder on the service's thread, and finishes the call with its
  // status. Refuses a file's name that is too long.
  grpc::ServerUnaryReactor* Run(grpc::CallbackServerContext* context, const std::string& file,
                                std::function<absl::Status(const std::string& folder)> work);

  // Constant after construction.
  const std::string data_folder_;
  Disk* const disk_;
  const Clock* const clock_;

  ReceivedFiles files_;  // Only the service's thread uses it.
  SerialExecutor thread_;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_FILES_UPLOADS_SERVICE_H_
