#include "common/data/dataset.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/data/cifar10.h"
#include "common/data/file_reader.h"
#include "common/data/idx.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

// Of a split, decompressed: beyond it a dataset does not belong into the memory of one process.
constexpr int64_t kSplitBytesMax = int64_t{8} << 30;
constexpr int64_t kIdxClasses = 10;

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

}  // namespace

absl::StatusOr<Dataset> LoadDataset(v1::Data::Format format, const v1::Split& split) {
  switch (format) {
    case v1::Data::IDX:
      return LoadIdx(split);
    case v1::Data::CIFAR10_BINARY:
      return LoadCifar10(split);
    default:
      return absl::InvalidArgumentError(absl::StrCat("data format ", static_cast<int>(format),
                                                     ", expected IDX or CIFAR10_BINARY"));
  }
}

}  // namespace capstan
