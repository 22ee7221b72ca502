// EmptyOwnFolder: a folder whose contents this process may remove, because a marker file in it says
// that a Capstan daemon has made it for scratch files.
//
// A flag may name any folder: without the marker a wrong one would cost its owner all that is in
// it.
// Thread safety: thread-safe for different folders.
#ifndef CAPSTAN_COMMON_STORAGE_OWN_FOLDER_H_
#define CAPSTAN_COMMON_STORAGE_OWN_FOLDER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace capstan {

inline constexpr absl::string_view kOwnFolderMarker = ".capstan-folder";

// Makes `folder`, if it is missing, and removes all that is in it but the marker, which is durable
// before the folder is used. A folder with nothing but a marker that was begun counts as empty.
// Errors: kFailedPrecondition  it holds something and no marker: nothing of it is removed.
//         kUnavailable, kResourceExhausted  the disk's; names the folder.
absl::Status EmptyOwnFolder(const std::string& folder);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_STORAGE_OWN_FOLDER_H_
