// Bytes as a .npy file, or as an .npz archive: an array has as many bytes as its shape says, and a
// number for each place; a member has its size's bytes at most.
#include "common/data/numpy.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/fuzz/target.h"

namespace capstan::fuzz {
namespace {

constexpr int64_t kMemberBytesMax = 1 << 20;

void CheckArray(const std::vector<uint8_t>& bytes) {
  const absl::StatusOr<NumpyArray> array = ParseNpy("array", bytes);
  if (!array.ok()) return;
  size_t count = 1;
  for (const int64_t dimension : array->shape) {
    FUZZ_CHECK(dimension >= 0);
    count *= static_cast<size_t>(dimension);
  }
  FUZZ_CHECK(count == 0 ? array->bytes.empty() : array->bytes.size() % count == 0);
  const absl::StatusOr<std::vector<float>> numbers = RealNumbers("array", *array);
  if (numbers.ok()) FUZZ_CHECK(numbers->size() == count);
  const absl::StatusOr<std::vector<uint8_t>> labels = SmallNumbers("array", *array, 10);
  if (labels.ok()) FUZZ_CHECK(labels->size() == count);
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<uint8_t> bytes(data, data + size);
  CheckArray(bytes);
  const absl::StatusOr<std::vector<uint8_t>> member =
      ReadZipMember("archive", bytes, "a.npy", kMemberBytesMax);
  if (!member.ok()) return 0;
  FUZZ_CHECK(static_cast<int64_t>(member->size()) <= kMemberBytesMax);
  CheckArray(*member);
  return 0;
}

}  // namespace capstan::fuzz
