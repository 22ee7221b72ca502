// Uploads: the folders in which the scheduler keeps files that users send before they submit a job
// (proto/uploads.proto).
//
//   <data folder>/uploads/<role>-<name>/FILE        a whole file
//                                       FILE.part   one that is being received
//
// A file is removed when the job that names it has ended or is refused, or if its owner sends more
// than kUploadsMax.
// Without credentials everybody has the folder "everybody".
// Thread safety: functions of their arguments and of the disk.
#ifndef CAPSTAN_SCHEDULER_FILES_UPLOADS_H_
#define CAPSTAN_SCHEDULER_FILES_UPLOADS_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/storage/disk.h"

namespace capstan::scheduler {

// The prefix of training.initial_weights if it names such a file.
inline constexpr absl::string_view kUploadPrefix = "upload:";
inline constexpr size_t kUploadsMax = 8;  // Files of a user.

// Returns the folder of all users' files.
std::string UploadsFolder(const std::string& data_folder);
// Returns the folder of one user. `owner`, here and below: the result of OwnerFor().
std::string UploadFolderOf(const std::string& data_folder, absl::string_view owner);

// Removes the oldest files of a folder until one more has room. A missing folder is made.
// Errors: those of the disk.
absl::Status MakeRoomForUpload(Disk& disk, const std::string& folder);

// Returns the path of the file that `weights` names; empty if it is none of these files.
// Errors: kInvalidArgument  the owner has no such file; says what was expected.
absl::StatusOr<std::string> UploadedFile(const std::string& data_folder, absl::string_view owner,
                                         absl::string_view weights);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_FILES_UPLOADS_H_
