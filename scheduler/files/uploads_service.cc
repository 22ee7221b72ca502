#include "scheduler/files/uploads_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/gate/call_gate.h"
#include "common/net/grpc_types/grpc_status.h"
#include "common/security/job_access.h"
#include "common/status/status_macros.h"
#include "scheduler/files/uploads.h"

namespace capstan::scheduler {
namespace {

std::string PartOf(const std::string& file) { return absl::StrCat(file, ".part"); }

}  // namespace

UploadsService::UploadsService(std::string data_folder, Disk* disk, const Clock* clock)
    : data_folder_(std::move(data_folder)),
      disk_(disk),
      clock_(clock),
      files_(disk, {}),
      thread_(kQueueMax) {}

UploadsService::~UploadsService() { Stop(); }

void UploadsService::Start() { thread_.Start(); }

void UploadsService::Stop() { thread_.Stop(); }

grpc::ServerUnaryReactor* UploadsService::Run(
    grpc::CallbackServerContext* context, const std::string& file,
    std::function<absl::Status(const std::string& folder)> work) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (file.size() > kNameBytesMax) {
    reactor->Finish(ToGrpcStatus(absl::InvalidArgumentError(absl::StrCat(
        "file: got a name of ", file.size(), " bytes, expected at most ", kNameBytesMax))));
    return reactor;
  }
  if (thread_.TryPost([reactor, folder = UploadFolderOf(data_folder_, OwnerFor(CallerOf(*context))),
                       work = std::move(work)] { reactor->Finish(ToGrpcStatus(work(folder))); })) {
    return reactor;
  }
  reactor->Finish(ToGrpcStatus(absl::UnavailableError(
      absl::StrCat("more than ", kQueueMax, " pieces of files wait, or the scheduler stops"))));
  return reactor;
}

grpc::ServerUnaryReactor* UploadsService::WritePiece(grpc::CallbackServerContext* context,
                                                     const v1::UploadPieceRequest* request,
                                                     v1::UploadPieceResponse*) {
  return Run(context, request->file(), [this, request](const std::string& folder) {
    const auto size = static_cast<int64_t>(request->data().size());
    if (request->offset() > kFileBytesMax - size) {
      return absl::InvalidArgumentError(absl::StrCat("file: got ", size, " bytes at offset ",
                                                     request->offset(), ", expected at most ",
                                                     kFileBytesMax, " in all"));
    }
    if (request->offset() == 0) CAPSTAN_RETURN_IF_ERROR(MakeRoomForUpload(*disk_, folder));
    return files_.Write(folder, PartOf(request->file()), request->offset(), request->data(),
                        request->crc32c(), clock_->Now());
  });
}

grpc::ServerUnaryReactor* UploadsService::Finish(grpc::CallbackServerContext* context,
                                                 const v1::FinishUploadRequest* request,
                                                 v1::FinishUploadResponse*) {
  return Run(context, request->file(), [this, request](const std::string& folder) {
    return files_.Finish(folder, PartOf(request->file()), request->file(), request->bytes(),
                         request->crc32c());
  });
}

}  // namespace capstan::scheduler
