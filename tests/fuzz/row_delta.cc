// Two snapshots of a bucket as bytes: the base, and what changed since. ApplyRowDelta refuses the
// pair and leaves the base as it was, or makes a snapshot whose parts are those of a whole number
// of rows, at most as many as the two have.
#include "common/checkpoint/row_delta.h"

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/checkpoint/row_pieces.h"
#include "proto/shard_state.pb.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"

namespace capstan::fuzz {
namespace {

bool Read(absl::string_view bytes, v1::ShardSnapshot* snapshot) {
  return snapshot->ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) &&
         JoinRowPieces(snapshot).ok();
}

size_t RowsIn(const v1::ShardSnapshot& snapshot) {
  return snapshot.bucket().stamps().size() / sizeof(uint32_t);
}

void CheckMerged(const v1::ShardSnapshot& merged, size_t rows_max) {
  const size_t rows = RowsIn(merged);
  FUZZ_CHECK(rows <= rows_max && !merged.has_since());
  FUZZ_CHECK(merged.bucket().stamps().size() == rows * sizeof(uint32_t));
  FUZZ_CHECK(rows == 0 ? merged.values().empty() : merged.values().size() % rows == 0);
  for (const std::string& part : merged.optimizer_state()) {
    FUZZ_CHECK(rows == 0 ? part.empty() : part.size() % rows == 0);
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  const uint16_t base_bytes = input.Word();
  v1::ShardSnapshot base, delta;
  if (!Read(input.Take(base_bytes), &base) || !Read(input.Rest(), &delta)) return 0;
  const std::string before = base.SerializeAsString();
  const size_t rows_max = RowsIn(base) + RowsIn(delta);
  const absl::Status applied = ApplyRowDelta(delta, &base);
  if (applied.ok()) return CheckMerged(base, rows_max), 0;
  FUZZ_CHECK(absl::IsDataLoss(applied));
  FUZZ_CHECK(base.SerializeAsString() == before);
  return 0;
}

}  // namespace capstan::fuzz
