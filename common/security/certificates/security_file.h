// Files of certificates and keys: reading them with the checks that a secret needs.
//
// Thread safety: thread-safe.
#ifndef CAPSTAN_COMMON_SECURITY_CERTIFICATES_SECURITY_FILE_H_
#define CAPSTAN_COMMON_SECURITY_CERTIFICATES_SECURITY_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace capstan {

inline constexpr int64_t kSecurityFileBytesMax = int64_t{1} << 20;

// kSecret: the file must belong to this user or to root, and its mode must be 0600 or 0400.
enum class Secrecy { kPublic, kSecret };

// Reads `name` in the open folder `folder_fd`, or relative to the working directory if that is
// AT_FDCWD. A symbolic link is followed; the checks are made on the file that was opened.
//   path  for messages.
// Errors: kNotFound            no such file.
//         kFailedPrecondition  no regular file, or one that others can read or write (kSecret); the
//                              message has the command that mends it.
//         kResourceExhausted   larger than kSecurityFileBytesMax.
//         kPermissionDenied, kUnavailable, kDataLoss  it cannot be opened or read.
absl::StatusOr<std::string> ReadSecurityFile(int folder_fd, const std::string& name,
                                             const std::string& path, Secrecy secrecy);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_SECURITY_CERTIFICATES_SECURITY_FILE_H_
