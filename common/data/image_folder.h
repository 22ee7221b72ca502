// LoadImageFolder: reads JPEG and PNG files that lie in a folder for each class.
//
//   train/cat/1.jpg   a class is the name of its folder; what begins with "." is left out, as are
//   train/dog/2.png   files that end otherwise than in .jpg, .jpeg and .png, and folders below
//
// Samples are in the order of their classes, and in that of the names of their files (by bytes).
// Thread safety: pure functions of the files.
#ifndef CAPSTAN_COMMON_DATA_IMAGE_FOLDER_H_
#define CAPSTAN_COMMON_DATA_IMAGE_FOLDER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/data/dataset_type.h"
#include "proto/job.pb.h"

namespace capstan {

inline constexpr size_t kImageClassesMax = 256;

// The folders in `folder`, by the bytes of their names.
// Errors: kNotFound, kPermissionDenied  the folder cannot be read.
//         kInvalidArgument  it has fewer than two folders, or more than kImageClassesMax.
absl::StatusOr<std::vector<std::string>> ClassFolders(const std::string& folder);

// The images in the folder of a class, by the bytes of their names. Errors: kNotFound and
// kPermissionDenied as ClassFolders.
absl::StatusOr<std::vector<std::string>> ImagesIn(const std::string& folder);

// Decodes and scales all images; label i is classes[i], whose folder may be missing.
// Errors: those of ClassFolders about reading, of DecodeImage and of ReadDataFile;
//         kInvalidArgument  a folder that is no class; no image at all; images of different sizes,
//                           if `options` gives no size.
//         kDataLoss         more than `bytes_max` bytes of pixels.
absl::StatusOr<Dataset> LoadImageFolder(const std::string& folder,
                                        absl::Span<const std::string> classes,
                                        const v1::ImageFolder& options, int64_t bytes_max);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_DATA_IMAGE_FOLDER_H_
