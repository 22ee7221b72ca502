// IsFileName: whether a name that stands in a file or message may be that of a file in a folder.
//
// Whoever joins such a name to a folder's path must stay in that folder.
// Thread safety: a pure function.
#ifndef CAPSTAN_COMMON_STORAGE_FILE_NAME_H_
#define CAPSTAN_COMMON_STORAGE_FILE_NAME_H_

#include "absl/strings/string_view.h"

namespace capstan {

// The rule of IsFileName, for messages.
inline constexpr absl::string_view kFileNameRule =
    "a file name of 1 to 255 bytes without '/' and control characters";

// Whether `name` has 1 to NAME_MAX bytes, no '/' and no control character (NUL is one), and is
// neither "." nor "..".
bool IsFileName(absl::string_view name);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_STORAGE_FILE_NAME_H_
