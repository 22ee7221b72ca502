// Bytes as a file of CIFAR-10: it is appended whole, or nothing of it. The target repeats an
// input's bytes up to a number of records, since no short input would be a file.
#include "common/data/cifar10.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"

namespace capstan::fuzz {

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  const size_t records = input.Byte() % 4;
  const size_t more = input.Byte() % 8 == 7 ? 1 : 0;
  const absl::string_view pattern = input.Rest();
  std::vector<uint8_t> bytes(records * kCifar10RecordBytes + more);
  for (size_t i = 0; i < bytes.size() && !pattern.empty(); ++i) {
    bytes[i] = static_cast<uint8_t>(pattern[i % pattern.size()]);
  }
  std::vector<uint8_t> pixels(3), labels(1);
  const absl::Status status = AppendCifar10("file", bytes, pixels, labels);
  const size_t appended = status.ok() ? records : 0;
  FUZZ_CHECK(labels.size() == 1 + appended);
  FUZZ_CHECK(pixels.size() == 3 + appended * (kCifar10RecordBytes - 1));
  if (status.ok()) FUZZ_CHECK(records > 0 && more == 0);
  for (const uint8_t label : labels) FUZZ_CHECK(label < kCifar10Classes);
  return 0;
}

}  // namespace capstan::fuzz
