#include "scheduler/files/uploads.h"

#include <sys/stat.h>

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/status/status_macros.h"
#include "common/storage/file_name.h"
#include "common/storage/files/path_access.h"

namespace capstan::scheduler {
namespace {

constexpr char kEverybody[] = "everybody";

}  // namespace

std::string UploadsFolder(const std::string& data_folder) {
  return absl::StrCat(data_folder, "/uploads");
}

std::string UploadFolderOf(const std::string& data_folder, absl::string_view owner) {
  const std::string name = owner.empty() ? kEverybody : absl::StrReplaceAll(owner, {{"/", "-"}});
  return absl::StrCat(UploadsFolder(data_folder), "/", name);
}

absl::Status MakeRoomForUpload(Disk& disk, const std::string& folder) {
  CAPSTAN_RETURN_IF_ERROR(disk.MakeFolder(folder));
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<std::string> names, disk.List(folder));
  std::vector<std::tuple<time_t, int64_t, std::string>> files;  // By the time of their last change.
  for (const std::string& name : names) {
    const std::string path = absl::StrCat(folder, "/", name);
    struct stat found;
    if (StatLink(path, &found) != 0) continue;
    files.emplace_back(found.st_mtim.tv_sec, found.st_mtim.tv_nsec, path);
  }
  std::sort(files.begin(), files.end());
  for (size_t i = 0; i + kUploadsMax <= files.size(); ++i) {
    CAPSTAN_RETURN_IF_ERROR(disk.Remove(std::get<2>(files[i])));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> UploadedFile(const std::string& data_folder, absl::string_view owner,
                                         absl::string_view weights) {
  if (!absl::StartsWith(weights, kUploadPrefix)) return "";
  const absl::string_view name = weights.substr(kUploadPrefix.size());
  const std::string path = absl::StrCat(UploadFolderOf(data_folder, owner), "/", name);
  struct stat found;
  if (IsFileName(name) && StatLink(path, &found) == 0 && S_ISREG(found.st_mode)) return path;
  return absl::InvalidArgumentError(
      absl::StrCat("training.initial_weights: got \"", weights,
                   "\", expected a file that you have sent to this scheduler before; "
                   "capstan job submit --upload-weights sends one"));
}

}  // namespace capstan::scheduler
