#include "common/data/cifar10.h"

#include <cstddef>

#include "absl/strings/str_cat.h"

namespace capstan {
namespace {

constexpr size_t kRecordBytes = kCifar10RecordBytes;
constexpr size_t kPlaneBytes = kCifar10Side * kCifar10Side;
constexpr size_t kImageBytes = kPlaneBytes * kCifar10Channels;

void PlanesToNhwc(const uint8_t* planes, uint8_t* pixels) {
  for (size_t c = 0; c < kCifar10Channels; ++c) {
    for (size_t i = 0; i < kPlaneBytes; ++i) {
      pixels[i * kCifar10Channels + c] = planes[c * kPlaneBytes + i];
    }
  }
}

}  // namespace

absl::Status AppendCifar10(absl::string_view name, absl::Span<const uint8_t> bytes,
                           std::vector<uint8_t>& pixels, std::vector<uint8_t>& labels) {
  if (bytes.empty() || bytes.size() % kRecordBytes != 0) {
    return absl::DataLossError(absl::StrCat(name, ": ", bytes.size(),
                                            " bytes, expected a whole number of records of ",
                                            kRecordBytes, " bytes, at least one"));
  }
  const size_t records = bytes.size() / kRecordBytes;
  for (size_t i = 0; i < records; ++i) {
    const int label = bytes[i * kRecordBytes];
    if (label >= kCifar10Classes) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": the label of record ", i,
                                                     " is out of range, expected 0 to ",
                                                     kCifar10Classes - 1));
    }
  }
  const size_t before = labels.size();
  labels.resize(before + records);
  pixels.resize(pixels.size() + records * kImageBytes);
  uint8_t* image = pixels.data() + pixels.size() - records * kImageBytes;
  for (size_t i = 0; i < records; ++i, image += kImageBytes) {
    labels[before + i] = bytes[i * kRecordBytes];
    PlanesToNhwc(bytes.data() + i * kRecordBytes + 1, image);
  }
  return absl::OkStatus();
}

}  // namespace capstan
