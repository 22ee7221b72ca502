// PublishFolder: puts a folder of files at a path, whole and atomically.
//
// The files are written into a new folder beside the path, PATH.RANDOM, and synced; then one rename
// makes it visible. What happens to the path depends on what is there:
//
//   nothing, or an empty folder   the new folder takes the path
//   a symbolic link to a folder   the link is swapped to the new folder; the former folder stays
//   a folder with files           refused, or exchanged with the new one and then deleted
//
// A process that opens the path meanwhile gets the former folder or the new one. If it has opened a
// folder that is then exchanged, it may find files deleted, and reads the path again; a former
// folder of a symbolic link stays whole. `capstan cert` makes the folders of certificates with it.
// Thread safety: functions of the file system. After two calls for one path at the same time, the
// folder of the last one stays.
#ifndef CAPSTAN_SCHEDULER_CLI_CERTIFICATES_PUBLISH_FOLDER_H_
#define CAPSTAN_SCHEDULER_CLI_CERTIFICATES_PUBLISH_FOLDER_H_

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace capstan::cli {

struct FolderFile {
  std::string name;
  std::string content;
  mode_t mode = 0644;  // Set exactly, whatever the umask is.
};

enum class IfFolderExists { kRefuse, kReplace };

// Checks what PublishFolder() would find, without changing anything.
// Errors: those of PublishFolder().
absl::Status CheckMayPublish(const std::string& path, absl::Span<const std::string> names,
                             IfFolderExists if_exists);

// Makes `path` a folder with exactly `files`, mode 0700.
//   names  the files that a folder to be replaced may have; one with another file is refused.
// Returns the path of the former folder of a symbolic link, which was kept; empty if there is none.
// Errors: kInvalidArgument     `path` ends in no name, as "/" and "..".
//         kAlreadyExists       `path` is a folder with files, and `if_exists` is kRefuse.
//         kFailedPrecondition  `path` is not a folder, or has other files than `names`.
//         Those of the operating system, with the path. Then `path` is as it was, or has all of the
//         new files; no part of them and no secret is left beside it.
absl::StatusOr<std::string> PublishFolder(const std::string& path,
                                          absl::Span<const FolderFile> files,
                                          absl::Span<const std::string> names,
                                          IfFolderExists if_exists);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_CERTIFICATES_PUBLISH_FOLDER_H_
