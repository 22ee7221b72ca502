#include "common/model/initial_rows.h"

#include <algorithm>
#include <array>

#include "common/random/normal.h"
#include "common/random/philox.h"

namespace capstan {
namespace {

float ScaleOf(const v1::Initializer& initializer) {
  switch (initializer.kind_case()) {
    case v1::Initializer::kUniformBound:
      return initializer.uniform_bound();
    case v1::Initializer::kNormalStd:
      return initializer.normal_std();
    case v1::Initializer::kConstant:
    case v1::Initializer::KIND_NOT_SET:
      break;
  }
  return initializer.constant();  // 0 if not set.
}

}  // namespace

RowInitializer::RowInitializer(const v1::Initializer& initializer, uint64_t seed, TableId table,
                               int64_t dim, int64_t zero_columns)
    : kind_(initializer.kind_case()),
      scale_(ScaleOf(initializer)),
      stream_(MixKey(MixKey(seed, 0), static_cast<uint64_t>(table.value()))),
      dim_(dim),
      zero_columns_(zero_columns) {}

void RowInitializer::Fill(uint64_t key, float* out) const {
  const bool normal = kind_ == v1::Initializer::kNormalStd;
  if (!normal && kind_ != v1::Initializer::kUniformBound) {
    std::fill(out, out + dim_, scale_);
    std::fill(out, out + zero_columns_, 0.0f);
    return;
  }
  const int64_t per_block = normal ? 2 : 4;
  std::array<uint32_t, 4> words{};
  for (int64_t c = 0; c < dim_; ++c) {
    const auto at = static_cast<size_t>(c % per_block);
    if (at == 0) words = Philox4x32(stream_, key, static_cast<uint64_t>(2 + c / per_block));
    out[c] = normal ? static_cast<float>(NormalOf(words[2 * at], words[2 * at + 1]) * scale_)
                    : (2.0f * ToUnitFloat(words[at]) - 1.0f) * scale_;
  }
  std::fill(out, out + zero_columns_, 0.0f);
}

}  // namespace capstan
