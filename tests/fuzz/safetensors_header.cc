// Text as the header of a safetensors file: entries that are accepted cover the data, and their
// header, written anew, says the same.
#include "common/tensor/safetensors/safetensors_header.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"

namespace capstan::fuzz {
namespace {

bool Same(const TensorEntry& a, const TensorEntry& b) {
  return a.name == b.name && a.shape == b.shape && a.begin == b.begin && a.end == b.end &&
         a.dtype == b.dtype;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  const int64_t data_bytes = input.Byte();  // Bytes of the values.
  const absl::StatusOr<std::vector<TensorEntry>> entries =
      DecodeSafetensorsHeader(input.Rest(), data_bytes);
  if (!entries.ok()) {
    FUZZ_CHECK(absl::IsDataLoss(entries.status()) || absl::IsUnimplemented(entries.status()));
    return 0;
  }
  int64_t end = 0;
  for (const TensorEntry& entry : *entries) {
    FUZZ_CHECK(entry.begin == end && entry.end >= end);
    end = entry.end;
  }
  FUZZ_CHECK(end == data_bytes);
  const std::string header = EncodeSafetensorsHeader(*entries);
  const absl::StatusOr<std::vector<TensorEntry>> again =
      DecodeSafetensorsHeader(header, data_bytes);
  FUZZ_CHECK(again.ok() && again->size() == entries->size());
  for (size_t i = 0; i < entries->size(); ++i) FUZZ_CHECK(Same((*again)[i], (*entries)[i]));
  return 0;
}

}  // namespace capstan::fuzz
