// Bytes as an IDX file of images or of labels: what is accepted has as many pixels, and labels as
// low, as it says.
#include "common/data/idx.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/fuzz/target.h"

namespace capstan::fuzz {

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr int64_t kClasses = 10;
  const std::vector<uint8_t> bytes(data, data + size);
  const absl::StatusOr<IdxImages> images = ParseIdxImages("images", bytes);
  if (images.ok()) {
    FUZZ_CHECK(images->count >= 1 && images->h >= 1 && images->w >= 1);
    FUZZ_CHECK(images->pixels.size() == static_cast<size_t>(images->count * images->h * images->w));
  }
  const absl::StatusOr<std::vector<uint8_t>> labels = ParseIdxLabels("labels", bytes, kClasses);
  FUZZ_CHECK(!images.ok() || !labels.ok());
  if (labels.ok()) {
    FUZZ_CHECK(labels->size() + 8 == size);
    for (const uint8_t label : *labels) FUZZ_CHECK(label < kClasses);
  }
  return 0;
}

}  // namespace capstan::fuzz
