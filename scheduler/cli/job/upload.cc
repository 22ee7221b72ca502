#include "scheduler/cli/job/upload.h"

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/process/random_hex.h"
#include "common/status/status_macros.h"
#include "common/storage/crc32c.h"
#include "scheduler/cli/console/interrupts.h"

namespace capstan::cli {
namespace {

constexpr size_t kPieceBytes = 1 << 20;
constexpr int kAttemptsMax = 5;  // A restarted scheduler has lost the received part of a file.
constexpr char kModelFile[] = "model.safetensors";

class Upload {
 public:
  Upload(SchedulerClient& scheduler, const std::string& path, const Patience::Options& options)
      : scheduler_(scheduler), path_(path), options_(options) {}

  const std::string& name() const { return name_; }

  absl::Status Send() {
    absl::Status status;
    for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
      status = SendOnce();
      if (!absl::IsFailedPrecondition(status)) break;
    }
    return status;
  }

 private:
  absl::Status SendOnce() {
    std::ifstream file(path_, std::ios::binary);
    if (!file) return absl::ErrnoToStatus(errno, path_);
    v1::FinishUploadRequest whole;
    whole.set_file(name_);
    Crc32c crc;
    std::string block(kPieceBytes, '\0');
    do {
      file.read(block.data(), kPieceBytes);
      if (file.bad()) return absl::ErrnoToStatus(errno, path_);
      v1::UploadPieceRequest piece;
      piece.set_file(name_);
      piece.set_offset(whole.bytes());
      piece.set_data(block.data(), static_cast<size_t>(file.gcount()));
      if (piece.data().empty() && piece.offset() > 0) break;
      piece.set_crc32c(Crc32cOf(piece.data()));
      crc.Add(piece.data());
      whole.set_bytes(whole.bytes() + file.gcount());
      CAPSTAN_RETURN_IF_ERROR(Patiently([&] { return scheduler_.WriteUpload(piece).status(); }));
    } while (file);
    whole.set_crc32c(crc.value());
    return Patiently([&] { return scheduler_.FinishUpload(whole).status(); });
  }

  absl::Status Patiently(const std::function<absl::Status()>& call) {
    Patience patience(scheduler_.address(), options_);
    while (Interrupts::Signal() == 0) {
      const absl::Status status = call();
      if (absl::IsCancelled(status) && Interrupts::Signal() != 0) break;
      if (!patience.AsksAgain(status)) return status;
    }
    return absl::CancelledError("the job was not submitted");
  }

  SchedulerClient& scheduler_;
  const std::string path_;
  const Patience::Options options_;
  const std::string name_ = absl::StrCat(RandomHex(), ".safetensors");
};

}  // namespace

absl::Status UploadWeights(SchedulerClient& scheduler, v1::JobSpec* spec,
                           const Patience::Options& options) {
  std::string path = spec->training().initial_weights();
  if (path.empty()) return absl::OkStatus();
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) path += absl::StrCat("/", kModelFile);
  Upload upload(scheduler, path, options);
  CAPSTAN_RETURN_IF_ERROR(upload.Send());
  spec->mutable_training()->set_initial_weights(absl::StrCat("upload:", upload.name()));
  return absl::OkStatus();
}

}  // namespace capstan::cli
