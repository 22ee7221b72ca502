// DiskError: the status of a file operation that has just failed, with the codes of common/storage.
//
// Thread safety: a pure function, but for errno, which it reads.
#ifndef CAPSTAN_COMMON_STORAGE_FILES_DISK_ERROR_H_
#define CAPSTAN_COMMON_STORAGE_FILES_DISK_ERROR_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace capstan {

// "cannot `what` `path`: (the error in errno)". kNotFound: no such file or folder.
// kResourceExhausted: no space, quota, or a file that may not be larger. kPermissionDenied: a link
// leads out of the allowed folders (path_access.h). kUnavailable: any other.
absl::Status DiskError(absl::string_view what, absl::string_view path);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_STORAGE_FILES_DISK_ERROR_H_
