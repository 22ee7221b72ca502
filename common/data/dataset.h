// LoadDataset: reads a split of images, in any of their formats, into a Dataset in memory.
//
// Thread safety: pure functions of the files.
#ifndef CAPSTAN_COMMON_DATA_DATASET_H_
#define CAPSTAN_COMMON_DATA_DATASET_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/data/dataset_type.h"
#include "proto/job.pb.h"

namespace capstan {

// The names of the classes of an IMAGE_FOLDER, in the order of their labels: data.class_names, else
// the folders of the training split. Errors: those of ClassFolders.
absl::StatusOr<std::vector<std::string>> ClassNamesOf(const v1::Data& data);

// The kind of a model's labels: classes, numbers (NUMPY only), or flags: numbers that are 0 or 1.
enum class LabelKind { kClasses, kNumbers, kFlags };
LabelKind LabelsOf(const v1::Model& model);

// Reads a split whole, checking magic numbers, sizes, truncation and labels.
// Errors: kNotFound            a file does not exist.
//         kPermissionDenied    it cannot be read.
//         kInvalidArgument     the format's paths are missing from the split, a label is out of
//                              range, the format has no labels that are numbers, or what
//                              image_folder.h and numpy.h say.
//         kDataLoss            wrong magic, truncated, trailing bytes, images and labels that
//                              differ in number.
// Every message names the file and says what was found and what was expected.
absl::StatusOr<Dataset> LoadDataset(const v1::Data& data, const v1::Split& split,
                                    LabelKind labels = LabelKind::kClasses);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_DATA_DATASET_H_
