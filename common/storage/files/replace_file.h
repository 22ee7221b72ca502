// TemporaryFile, ReplaceFile: how a file is replaced so that no reader sees half of it.
//
// Every file that is renamed to its final name begins as a temporary file beside it. The name is
// random and the file new, so that nobody who may write in the folder can have put a file or a
// symbolic link of his own there. common/tensor/safetensors/durable_file.h also syncs.
// Thread safety: thread-safe.
#ifndef CAPSTAN_COMMON_STORAGE_FILES_REPLACE_FILE_H_
#define CAPSTAN_COMMON_STORAGE_FILES_REPLACE_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/storage/files/descriptor.h"

namespace capstan {

struct TemporaryFile {
  Descriptor fd;  // For reading and writing.
  std::string path;
};

// Makes an empty file "<path>.tmp-<eight random characters>" with kPrivateFileMode.
// Errors: that of the operating system, with the path (kNotFound: no such folder...).
absl::StatusOr<TemporaryFile> MakeTemporaryBeside(const std::string& path);

// Replaces `path`, or makes it: a reader sees the old contents or the new ones. The new ones are
// not synced to the disk. On failure `path` is as it was and nothing is left beside it.
// Errors: kNotFound           no such folder.
//         kResourceExhausted  no space.
//         kUnavailable        another failure. Each names the path.
absl::Status ReplaceFile(const std::string& path, absl::string_view contents);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_STORAGE_FILES_REPLACE_FILE_H_
