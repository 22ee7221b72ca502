// Names of the folders of staged models (common/tensor/staged_model.h), and of the file by which
// another host finds out whether it sees a folder of the scheduler's host.
#ifndef CAPSTAN_COMMON_TYPES_STAGING_H_
#define CAPSTAN_COMMON_TYPES_STAGING_H_

namespace capstan {

// "<this><rank>-<incarnation>", of the task that writes there.
inline constexpr char kStagedModelPrefix[] = ".export-";

// A file that is in the folder itself while files are written there (proto/job_files.proto).
inline constexpr char kFolderMark[] = ".capstan-mark";

}  // namespace capstan

#endif  // CAPSTAN_COMMON_TYPES_STAGING_H_
