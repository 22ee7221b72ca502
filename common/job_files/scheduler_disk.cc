#include "common/job_files/scheduler_disk.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/grpc/channel.h"
#include "common/net/grpc_types/grpc_status.h"
#include "common/net/node/agent_timing.h"
#include "common/status/status_macros.h"
#include "common/storage/crc32c.h"
#include "common/storage/write_durably.h"
#include "common/time/instant.h"

namespace capstan {
namespace {

constexpr int64_t kMarkBytesMax = 64;

std::string NameOf(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

// A call is cancelled by Stop, or by a scheduler that stops.
bool MayAnswerLater(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsCancelled(status);
}

}  // namespace

class SchedulerDisk::File final : public WritableFile {
 public:
  File(SchedulerDisk* disk, std::string path) : disk_(disk), path_(std::move(path)) {}

  absl::Status Append(absl::string_view bytes) override {
    while (!bytes.empty()) {
      const size_t room = static_cast<size_t>(kPieceBytes) - piece_.size();
      const absl::string_view taken = bytes.substr(0, room);
      piece_.append(taken.data(), taken.size());
      bytes.remove_prefix(taken.size());
      if (taken.size() == room) CAPSTAN_RETURN_IF_ERROR(SendPiece());
    }
    return absl::OkStatus();
  }

  absl::Status Sync() override {
    if (!piece_.empty() || sent_.bytes == 0) CAPSTAN_RETURN_IF_ERROR(SendPiece());
    disk_->NoteWritten(path_, sent_);
    return absl::OkStatus();
  }

 private:
  absl::Status SendPiece() {
    CAPSTAN_RETURN_IF_ERROR(disk_->Send(path_, sent_.bytes, piece_));
    crc_.Add(piece_);
    sent_ = {.bytes = sent_.bytes + static_cast<int64_t>(piece_.size()), .crc32c = crc_.value()};
    piece_.clear();
    return absl::OkStatus();
  }

  SchedulerDisk* const disk_;
  const std::string path_;
  std::string piece_;  // The bytes still to be sent, fewer than kPieceBytes.
  Written sent_;
  Crc32c crc_;  // The checksum of the bytes sent.
};

SchedulerDisk::SchedulerDisk(Options options)
    : options_(std::move(options)),
      stub_(v1::JobFiles::NewStub(
          MakeChannel(options_.scheduler, ChannelKind::kControl, options_.credentials))) {}

SchedulerDisk::~SchedulerDisk() { Stop(); }

void SchedulerDisk::Stop() {
  absl::MutexLock lock(&mutex_);
  stopped_ = true;
  for (grpc::ClientContext* context : in_flight_) context->TryCancel();
}

bool SchedulerDisk::BeginAttempt(grpc::ClientContext* context) {
  absl::MutexLock lock(&mutex_);
  if (stopped_) return false;
  in_flight_.push_back(context);
  return true;
}

void SchedulerDisk::EndAttempt(grpc::ClientContext* context) {
  absl::MutexLock lock(&mutex_);
  std::erase(in_flight_, context);
}

absl::Status SchedulerDisk::Repeat(const std::function<grpc::Status(grpc::ClientContext*)>& call) {
  const Instant give_up = clock_.Now() + options_.patience;
  absl::Duration pause = agent_timing::kBackoffMin;
  while (true) {
    grpc::ClientContext context;
    SetDeadline(context, options_.call_timeout);
    if (!BeginAttempt(&context)) return absl::CancelledError("this process stops");
    const absl::Status status = FromGrpcStatus(call(&context));
    EndAttempt(&context);
    if (absl::IsAborted(status)) return absl::UnavailableError(status.message());
    if (!MayAnswerLater(status)) return status;
    if (clock_.Now() + pause >= give_up) {
      return absl::UnavailableError(
          absl::StrCat("the scheduler at ", options_.scheduler, " did not take or give files for ",
                       absl::FormatDuration(options_.patience), ": ", status.message()));
    }
    absl::MutexLock lock(&mutex_);
    mutex_.AwaitWithTimeout(absl::Condition(&stopped_), pause);
    pause = std::min(2 * pause, agent_timing::kBackoffMax);
  }
}

absl::StatusOr<v1::MarkFolderResponse> SchedulerDisk::MarkFolder(const std::string& folder) {
  v1::MarkFolderRequest request;
  request.set_folder(folder);
  v1::MarkFolderResponse response;
  CAPSTAN_RETURN_IF_ERROR(Repeat([&](grpc::ClientContext* context) {
    return stub_->MarkFolder(context, request, &response);
  }));
  return response;
}

absl::StatusOr<bool> SchedulerDisk::IsShared(const std::string& folder, Disk& own) {
  CAPSTAN_ASSIGN_OR_RETURN(const v1::MarkFolderResponse mark, MarkFolder(folder));
  const absl::StatusOr<std::string> seen =
      own.Read(absl::StrCat(folder, "/", mark.file()), kMarkBytesMax);
  return seen.ok() && !seen->empty() && *seen == mark.content();
}

absl::StatusOr<std::unique_ptr<WritableFile>> SchedulerDisk::Create(const std::string& path) {
  return std::make_unique<File>(this, path);
}

absl::Status SchedulerDisk::Send(const std::string& path, int64_t offset, absl::string_view data) {
  v1::WritePieceRequest request;
  request.set_folder(FolderOf(path));
  request.set_file(NameOf(path));
  request.set_offset(offset);
  request.set_data(data.data(), data.size());
  request.set_crc32c(Crc32cOf(data));
  v1::WritePieceResponse response;
  return Repeat(
      [&](grpc::ClientContext* context) { return stub_->WritePiece(context, request, &response); });
}

void SchedulerDisk::NoteWritten(const std::string& path, const Written& written) {
  absl::MutexLock lock(&mutex_);
  written_[path] = written;
}

absl::Status SchedulerDisk::Rename(const std::string& from, const std::string& to) {
  v1::FinishFileRequest request;
  {
    absl::MutexLock lock(&mutex_);
    const auto written = written_.extract(from);
    if (written.empty()) {
      return absl::NotFoundError(absl::StrCat("cannot rename ", from, ": it was not written here"));
    }
    request.set_bytes(written.mapped().bytes);
    request.set_crc32c(written.mapped().crc32c);
  }
  request.set_folder(FolderOf(from));
  request.set_file(NameOf(from));
  request.set_name(NameOf(to));
  v1::FinishFileResponse response;
  return Repeat(
      [&](grpc::ClientContext* context) { return stub_->FinishFile(context, request, &response); });
}

absl::StatusOr<v1::ReadPieceResponse> SchedulerDisk::ReadPiece(const std::string& path,
                                                               int64_t offset, int64_t bytes_max) {
  v1::ReadPieceRequest request;
  request.set_folder(FolderOf(path));
  request.set_file(NameOf(path));
  request.set_offset(offset);
  request.set_bytes_max(bytes_max);
  v1::ReadPieceResponse response;
  CAPSTAN_RETURN_IF_ERROR(Repeat([&](grpc::ClientContext* context) {
    const grpc::Status status = stub_->ReadPiece(context, request, &response);
    if (!status.ok() || Crc32cOf(response.data()) == response.crc32c()) return status;
    return ToGrpcStatus(absl::UnavailableError(
        absl::StrCat(path, ": the piece at offset ", offset, " was damaged on its way")));
  }));
  return response;
}

absl::StatusOr<std::string> SchedulerDisk::Read(const std::string& path, int64_t bytes_max) {
  std::string whole;
  while (true) {
    const auto at = static_cast<int64_t>(whole.size());
    CAPSTAN_ASSIGN_OR_RETURN(const v1::ReadPieceResponse piece, ReadPiece(path, at, kPieceBytes));
    if (piece.file_bytes() > bytes_max) {
      return absl::ResourceExhaustedError(
          absl::StrCat(path, " has ", piece.file_bytes(), " bytes, expected at most ", bytes_max));
    }
    if (at == 0) whole.reserve(static_cast<size_t>(piece.file_bytes()));
    whole += piece.data();
    if (piece.data().empty() || static_cast<int64_t>(whole.size()) >= piece.file_bytes()) break;
  }
  return whole;
}

absl::StatusOr<std::string> SchedulerDisk::ReadPart(const std::string& path, int64_t begin,
                                                    int64_t bytes) {
  std::string part;
  while (static_cast<int64_t>(part.size()) < bytes) {
    const int64_t at = begin + static_cast<int64_t>(part.size());
    const int64_t left = bytes - static_cast<int64_t>(part.size());
    CAPSTAN_ASSIGN_OR_RETURN(const v1::ReadPieceResponse piece,
                             ReadPiece(path, at, std::min(left, kPieceBytes)));
    if (piece.data().empty()) {
      return absl::DataLossError(
          absl::StrCat(path, " ends at byte ", piece.file_bytes(), ", expected ", begin + bytes));
    }
    part += piece.data();
  }
  return part;
}

// The scheduler starts the file anew if it is written again; otherwise it removes the file with its
// folder.
absl::Status SchedulerDisk::Remove(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  written_.erase(path);
  return absl::OkStatus();
}

absl::Status SchedulerDisk::MakeFolder(const std::string& path) {
  return MarkFolder(path).status();
}

absl::Status SchedulerDisk::SyncFolder(const std::string&) { return absl::OkStatus(); }

absl::StatusOr<std::vector<std::string>> SchedulerDisk::List(const std::string& path) {
  return absl::UnimplementedError(
      absl::StrCat(path, ": folders of the scheduler's host are not listed"));
}

}  // namespace capstan
