#include "common/tensor/held_folder.h"

#include <errno.h>
#include <fcntl.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/storage/files/path_access.h"
#include "common/tensor/safetensors/durable_file.h"

namespace capstan {

absl::StatusOr<HeldFolder> HeldFolder::Make(const std::string& path) {
  CAPSTAN_RETURN_IF_ERROR(MakeDirectories(path));
  Descriptor fd(OpenPath(path, O_RDONLY | O_DIRECTORY));
  if (fd.ok()) return HeldFolder(std::move(fd));
  const int error = errno;
  return absl::ErrnoToStatus(error, absl::StrCat("cannot open the folder ", path));
}

HeldFolder::HeldFolder(Descriptor fd) : fd_(std::move(fd)) { HoldFolder(fd_.get()); }

HeldFolder::~HeldFolder() {
  if (fd_.ok()) ReleaseFolder(fd_.get());
}

std::string HeldFolder::path() const { return absl::StrCat("/proc/self/fd/", fd_.get()); }

}  // namespace capstan
