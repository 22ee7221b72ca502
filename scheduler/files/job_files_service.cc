#include "scheduler/files/job_files_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/gate/call_gate.h"
#include "common/net/grpc_types/grpc_status.h"
#include "common/observability/log.h"
#include "common/status/status_macros.h"
#include "common/storage/crc32c.h"
#include "common/types/staging.h"

namespace capstan::scheduler {
namespace {

absl::Status Refused(const std::optional<Identity>& caller, const std::string& why) {
  if (!caller.has_value()) return absl::PermissionDeniedError(why);
  const std::string message = absl::StrCat(why, "; for the caller, ", FormatIdentity(*caller),
                                           ", only jobs count that run on it");
  LogWarning({}, "refused: {}", message);
  return absl::PermissionDeniedError(message);
}

}  // namespace

JobFilesService::JobFilesService(Disk* disk, const Clock* clock, Rights rights)
    : clock_(clock), rights_(std::move(rights)), files_(disk, {}), thread_(kQueueMax) {}

JobFilesService::~JobFilesService() { Stop(); }

void JobFilesService::Start() { thread_.Start(); }

void JobFilesService::Stop() { thread_.Stop(); }

grpc::ServerUnaryReactor* JobFilesService::Run(grpc::CallbackServerContext* context,
                                               std::function<absl::Status(const Caller&)> work) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (thread_.TryPost([reactor, caller = CallerOf(*context), work = std::move(work)] {
        reactor->Finish(ToGrpcStatus(work(caller)));
      })) {
    return reactor;
  }
  reactor->Finish(ToGrpcStatus(absl::UnavailableError(
      absl::StrCat("more than ", kQueueMax, " pieces of files wait, or the scheduler stops"))));
  return reactor;
}

absl::Status JobFilesService::MayWrite(const std::string& folder, const Caller& caller) const {
  if (rights_.may_write(folder, caller)) return absl::OkStatus();
  return Refused(caller,
                 absl::StrCat("no checkpoint and no model is being written into ", folder, " now"));
}

grpc::ServerUnaryReactor* JobFilesService::MarkFolder(grpc::CallbackServerContext* context,
                                                      const v1::MarkFolderRequest* request,
                                                      v1::MarkFolderResponse* response) {
  return Run(context, [this, request, response](const Caller& caller) {
    CAPSTAN_RETURN_IF_ERROR(MayWrite(request->folder(), caller));
    CAPSTAN_ASSIGN_OR_RETURN(*response->mutable_content(), files_.MarkFolder(request->folder()));
    response->set_file(kFolderMark);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* JobFilesService::WritePiece(grpc::CallbackServerContext* context,
                                                      const v1::WritePieceRequest* request,
                                                      v1::WritePieceResponse*) {
  return Run(context, [this, request](const Caller& caller) {
    CAPSTAN_RETURN_IF_ERROR(MayWrite(request->folder(), caller));
    return files_.Write(request->folder(), request->file(), request->offset(), request->data(),
                        request->crc32c(), clock_->Now());
  });
}

grpc::ServerUnaryReactor* JobFilesService::FinishFile(grpc::CallbackServerContext* context,
                                                      const v1::FinishFileRequest* request,
                                                      v1::FinishFileResponse*) {
  return Run(context, [this, request](const Caller& caller) {
    CAPSTAN_RETURN_IF_ERROR(MayWrite(request->folder(), caller));
    return files_.Finish(request->folder(), request->file(), request->name(), request->bytes(),
                         request->crc32c());
  });
}

grpc::ServerUnaryReactor* JobFilesService::ReadPiece(grpc::CallbackServerContext* context,
                                                     const v1::ReadPieceRequest* request,
                                                     v1::ReadPieceResponse* response) {
  return Run(context, [this, request, response](const Caller& caller) {
    if (!rights_.may_read(request->folder(), caller)) {
      return Refused(caller, absl::StrCat("no job may go back to a checkpoint in ",
                                          request->folder(), " now"));
    }
    CAPSTAN_ASSIGN_OR_RETURN(
        ReceivedFiles::Piece piece,
        files_.Read(request->folder(), request->file(), request->offset(), request->bytes_max()));
    response->set_crc32c(Crc32cOf(piece.data));
    response->set_file_bytes(piece.file_bytes);
    response->set_data(std::move(piece.data));
    return absl::OkStatus();
  });
}

}  // namespace capstan::scheduler
