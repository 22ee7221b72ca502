#include "worker/task/model_place.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/storage/posix_disk.h"
#include "common/storage/write_durably.h"
#include "common/tensor/held_folder.h"
#include "common/tensor/model_file.h"
#include "common/tensor/staged_model.h"

namespace capstan::worker {
namespace {

// The most attempts to send one file; each failed one means that the scheduler restarted meanwhile.
constexpr int kAttemptsMax = 10;

absl::Status SendFile(const std::string& from, SchedulerDisk& scheduler, const std::string& to,
                      const Progress& progress) {
  PosixDisk own;
  std::error_code error;
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(from, error));
  if (error) return absl::NotFoundError(absl::StrCat(from, ": ", error.message()));
  CAPSTAN_ASSIGN_OR_RETURN(DurableDiskFile file, DurableDiskFile::Create(&scheduler, to));
  for (int64_t at = 0; at < bytes;) {
    const int64_t size = std::min(SchedulerDisk::kPieceBytes, bytes - at);
    CAPSTAN_ASSIGN_OR_RETURN(const std::string piece, own.ReadPart(from, at, size));
    CAPSTAN_RETURN_IF_ERROR(file.Append(piece));
    at += size;
    if (progress) progress("bytes sent", size);
  }
  return file.Commit();
}

absl::Status SendModel(const std::string& scratch, SchedulerDisk& scheduler,
                       const std::string& folder, const Progress& progress) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<std::string> files, ModelFilesIn(scratch));
  for (const std::string& name : files) {
    const std::string to = absl::StrCat(folder, "/", name);
    absl::Status sent;
    for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
      sent = SendFile(absl::StrCat(scratch, "/", name), scheduler, to, progress);
      if (!absl::IsFailedPrecondition(sent)) break;
    }
    CAPSTAN_RETURN_IF_ERROR(Annotate(sent, absl::StrCat("sending ", name, " to the scheduler")));
  }
  return absl::OkStatus();
}

// Writes through the folder's descriptor, so that its name is not looked up again.
absl::Status WriteInto(const std::string& folder,
                       const std::function<absl::Status(const std::string& path)>& write) {
  CAPSTAN_ASSIGN_OR_RETURN(const HeldFolder held, HeldFolder::Make(folder));
  return Annotate(write(held.path()), folder);
}

}  // namespace

absl::Status StageModel(SchedulerDisk& scheduler, const std::string& folder,
                        const std::string& scratch, const Progress& progress,
                        const std::function<absl::Status(const std::string& path)>& write) {
  PosixDisk own;
  CAPSTAN_ASSIGN_OR_RETURN(const bool shared, scheduler.IsShared(folder, own));
  if (shared) return WriteInto(folder, write);
  absl::Status sent = WriteInto(scratch, write);
  if (sent.ok()) sent = SendModel(scratch, scheduler, folder, progress);
  RemoveStagedModel(scratch);
  return sent;
}

}  // namespace capstan::worker
