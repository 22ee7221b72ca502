#include "common/storage/own_folder.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/storage/posix_disk.h"
#include "common/storage/write_durably.h"

namespace capstan {
namespace {

constexpr absl::string_view kText =
    "Scratch files of a Capstan daemon, which removes all that is in this folder when it starts.\n";

}  // namespace

absl::Status EmptyOwnFolder(const std::string& folder) {
  PosixDisk disk;
  CAPSTAN_RETURN_IF_ERROR(disk.MakeFolder(folder));
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<std::string> names, disk.List(folder));
  const bool marked = std::find(names.begin(), names.end(), kOwnFolderMarker) != names.end();
  if (!marked) {
    // A process that is killed while it makes the marker leaves the temporary file alone.
    const std::vector<std::string> unfinished = {absl::StrCat(kOwnFolderMarker, kTemporarySuffix)};
    if (names.empty() || names == unfinished) {
      return WriteDurably(disk, absl::StrCat(folder, "/", kOwnFolderMarker), {kText});
    }
    return absl::FailedPreconditionError(
        absl::StrCat(folder, " holds \"", names.front(), "\" and no ", kOwnFolderMarker,
                     ", so it is somebody else's and nothing in it is removed: expected an empty "
                     "folder, a missing one, or one that a Capstan daemon has made"));
  }
  for (const std::string& name : names) {
    if (name == kOwnFolderMarker) continue;
    std::error_code error;
    std::filesystem::remove_all(absl::StrCat(folder, "/", name), error);
    if (error) {
      return absl::UnavailableError(
          absl::StrCat("cannot remove ", folder, "/", name, ": ", error.message()));
    }
  }
  return absl::OkStatus();
}

}  // namespace capstan
