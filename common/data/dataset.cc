#include "common/data/dataset.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/data/cifar10.h"
#include "common/data/file_reader.h"
#include "common/data/idx.h"
#include "common/data/image_folder.h"
#include "common/data/numpy.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

// A split has at most these bytes, decompressed: a larger one does not belong in the memory of one
// process.
constexpr int64_t kSplitBytesMax = int64_t{8} << 30;
constexpr int64_t kIdxClasses = 10;
constexpr int64_t kNumpyClasses = 256;  // Labels are held as bytes.

absl::StatusOr<Dataset> LoadIdx(const v1::Split& split) {
  if (split.images().empty() || split.labels().empty()) {
    return absl::InvalidArgumentError(absl::StrCat("format IDX: images is '", split.images(),
                                                   "' and labels is '", split.labels(),
                                                   "', expected the path of a file in each"));
  }
  if (split.files_size() > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("format IDX: files names '", split.files(0),
                     "', expected none: IDX is read from images and labels"));
  }
  CAPSTAN_ASSIGN_OR_RETURN(auto image_bytes, ReadDataFile(split.images(), kSplitBytesMax));
  CAPSTAN_ASSIGN_OR_RETURN(IdxImages images,
                           ParseIdxImages(split.images(), std::move(image_bytes)));
  CAPSTAN_ASSIGN_OR_RETURN(auto label_bytes, ReadDataFile(split.labels(), kSplitBytesMax));
  CAPSTAN_ASSIGN_OR_RETURN(auto labels,
                           ParseIdxLabels(split.labels(), std::move(label_bytes), kIdxClasses));
  if (images.count != static_cast<int64_t>(labels.size())) {
    return absl::DataLossError(absl::StrCat(split.labels(), ": ", labels.size(),
                                            " labels, expected ", images.count,
                                            ", one for each image of ", split.images()));
  }
  Dataset dataset;
  dataset.shape = {.h = images.h, .w = images.w, .c = 1};
  dataset.count = images.count;
  dataset.classes = kIdxClasses;
  dataset.pixels = std::move(images.pixels);
  dataset.labels = std::move(labels);
  return dataset;
}

absl::StatusOr<Dataset> LoadCifar10(const v1::Split& split) {
  if (split.files_size() == 0) {
    return absl::InvalidArgumentError(
        "format CIFAR10_BINARY: files is empty, expected the path of one or more files");
  }
  if (!split.images().empty() || !split.labels().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("format CIFAR10_BINARY: images is '", split.images(), "' and labels is '",
                     split.labels(), "', expected neither: CIFAR-10 is read from files"));
  }
  Dataset dataset;
  dataset.shape = {.h = kCifar10Side, .w = kCifar10Side, .c = kCifar10Channels};
  dataset.classes = kCifar10Classes;
  for (const std::string& file : split.files()) {
    const int64_t room = kSplitBytesMax - static_cast<int64_t>(dataset.pixels.size());
    CAPSTAN_ASSIGN_OR_RETURN(const auto bytes, ReadDataFile(file, room));
    CAPSTAN_RETURN_IF_ERROR(AppendCifar10(file, bytes, dataset.pixels, dataset.labels));
  }
  dataset.count = static_cast<int64_t>(dataset.labels.size());
  return dataset;
}

// Reads the array at "FILE.npy", or at "FILE.npz:NAME".
absl::StatusOr<NumpyArray> LoadArray(const std::string& path) {
  const size_t colon = path.rfind(".npz:");
  if (colon == std::string::npos) {
    CAPSTAN_ASSIGN_OR_RETURN(auto bytes, ReadDataFile(path, kSplitBytesMax));
    return ParseNpy(path, std::move(bytes));
  }
  const std::string file = path.substr(0, colon + 4), name = path.substr(colon + 5);
  CAPSTAN_ASSIGN_OR_RETURN(const auto archive, ReadDataFile(file, kSplitBytesMax));
  CAPSTAN_ASSIGN_OR_RETURN(
      auto bytes, ReadZipMember(file, archive, absl::StrCat(name, ".npy"), kSplitBytesMax));
  return ParseNpy(path, std::move(bytes));
}

// Sets the dataset's targets from numeric labels of shape [n] or [n, k].
absl::Status TakeTargets(const v1::Split& split, const NumpyArray& labels, LabelKind kind,
                         Dataset* dataset) {
  const std::vector<int64_t>& shape = labels.shape;
  const bool sized =
      (shape.size() == 1 || (shape.size() == 2 && shape[1] >= 1)) && shape[0] == dataset->count;
  if (!sized) {
    return absl::DataLossError(absl::StrCat(
        split.labels(), ": labels [", absl::StrJoin(shape, ", "), "], expected [", dataset->count,
        "] or [", dataset->count, ", k], numbers for each image of ", split.images()));
  }
  dataset->classes = shape.size() == 2 ? shape[1] : 1;
  CAPSTAN_ASSIGN_OR_RETURN(dataset->targets, RealNumbers(split.labels(), labels));
  if (kind != LabelKind::kFlags) return absl::OkStatus();
  for (size_t i = 0; i < dataset->targets.size(); ++i) {
    const float flag = dataset->targets[i];
    if (flag == 0.0f || flag == 1.0f) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(split.labels(), ": number ", i, " is another one, expected 0 or 1"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Dataset> LoadNumpy(const v1::Split& split, LabelKind kind) {
  if (split.images().empty() || split.labels().empty() || split.files_size() > 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "format NUMPY: images is '", split.images(), "', labels is '", split.labels(), "' and ",
        split.files_size(), " files, expected an array in each of the first two and no files"));
  }
  CAPSTAN_ASSIGN_OR_RETURN(NumpyArray images, LoadArray(split.images()));
  const std::vector<int64_t>& shape = images.shape;
  const bool sized = (shape.size() == 3 || shape.size() == 4) &&
                     *std::min_element(shape.begin(), shape.end()) >= 1;
  if (images.type != "|u1" || !sized) {
    return absl::InvalidArgumentError(
        absl::StrCat(split.images(), ": an array [", absl::StrJoin(shape, ", "), "] of ",
                     images.type, ", expected bytes (uint8) [n, h, w] or [n, h, w, c]"));
  }
  CAPSTAN_ASSIGN_OR_RETURN(const NumpyArray labels, LoadArray(split.labels()));
  Dataset dataset;
  dataset.shape = {.h = shape[1], .w = shape[2], .c = shape.size() == 4 ? shape[3] : 1};
  dataset.count = shape[0];
  dataset.pixels = std::move(images.bytes);
  if (kind != LabelKind::kClasses) {
    CAPSTAN_RETURN_IF_ERROR(TakeTargets(split, labels, kind, &dataset));
    return dataset;
  }
  if (labels.shape != std::vector<int64_t>{shape[0]}) {
    return absl::DataLossError(absl::StrCat(split.labels(), ": labels [",
                                            absl::StrJoin(labels.shape, ", "), "], expected [",
                                            shape[0], "], one for each image of ", split.images()));
  }
  dataset.classes = kNumpyClasses;
  CAPSTAN_ASSIGN_OR_RETURN(dataset.labels, SmallNumbers(split.labels(), labels, kNumpyClasses));
  return dataset;
}

absl::StatusOr<Dataset> LoadFolder(const v1::Data& data, const v1::Split& split) {
  if (split.images().empty() || !split.labels().empty() || split.files_size() > 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "format IMAGE_FOLDER: images is '", split.images(), "', labels is '", split.labels(),
        "' and ", split.files_size(), " files, expected a folder in the first and nothing else"));
  }
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<std::string> classes, ClassNamesOf(data));
  return LoadImageFolder(split.images(), classes, data.image_folder(), kSplitBytesMax);
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ClassNamesOf(const v1::Data& data) {
  if (data.class_names_size() == 0) return ClassFolders(data.train().images());
  return std::vector<std::string>(data.class_names().begin(), data.class_names().end());
}

LabelKind LabelsOf(const v1::Model& model) {
  switch (model.loss().kind_case()) {
    case v1::Model::Loss::kSquared:
    case v1::Model::Loss::kHuber:
    case v1::Model::Loss::kQuantile:
      return LabelKind::kNumbers;
    case v1::Model::Loss::kSigmoidCrossEntropy:
      return LabelKind::kFlags;
    case v1::Model::Loss::kSoftmaxCrossEntropy:
    case v1::Model::Loss::KIND_NOT_SET:
      break;
  }
  return LabelKind::kClasses;
}

absl::StatusOr<Dataset> LoadDataset(const v1::Data& data, const v1::Split& split,
                                    LabelKind labels) {
  if (labels != LabelKind::kClasses && data.format() != v1::Data::NUMPY) {
    return absl::InvalidArgumentError(
        absl::StrCat("data format ", v1::Data::Format_Name(data.format()),
                     " has labels that are classes, expected NUMPY, whose labels may be numbers"));
  }
  switch (data.format()) {
    case v1::Data::IDX:
      return LoadIdx(split);
    case v1::Data::CIFAR10_BINARY:
      return LoadCifar10(split);
    case v1::Data::IMAGE_FOLDER:
      return LoadFolder(data, split);
    case v1::Data::NUMPY:
      return LoadNumpy(split, labels);
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("data format ", static_cast<int>(data.format()),
                       ", expected IDX, CIFAR10_BINARY, IMAGE_FOLDER or NUMPY"));
  }
}

}  // namespace capstan
