#include "common/model/initial_values.h"

#include <algorithm>
#include <array>

#include "common/model/tables.h"
#include "common/random/normal.h"
#include "common/random/philox.h"

namespace capstan {
namespace {

void FillUniform(uint64_t key, float bound, int64_t begin, int64_t end, float* out) {
  std::array<uint32_t, 4> words{};
  for (int64_t e = begin; e < end; ++e) {
    const auto index = static_cast<uint64_t>(e);
    if (e == begin || index % 4 == 0) words = Philox4x32(key, index / 4);
    // 2 u - 1 is exact: u is a multiple of 2^-24.
    *out++ = (2.0f * ToUnitFloat(words[index % 4]) - 1.0f) * bound;
  }
}

void FillNormal(uint64_t key, float std, int64_t begin, int64_t end, float* out) {
  for (int64_t e = begin; e < end; ++e) {
    // The high word is 1, so no block is shared with the uniform tensors of the same table.
    const auto words = Philox4x32(key, static_cast<uint64_t>(e), 1);
    *out++ = static_cast<float>(NormalOf(words[0], words[1]) * std);
  }
}

void FillTensor(const v1::Initializer& initializer, uint64_t key, int64_t begin, int64_t end,
                float* out) {
  switch (initializer.kind_case()) {
    case v1::Initializer::kUniformBound:
      return FillUniform(key, initializer.uniform_bound(), begin, end, out);
    case v1::Initializer::kNormalStd:
      return FillNormal(key, initializer.normal_std(), begin, end, out);
    case v1::Initializer::kConstant:
    case v1::Initializer::KIND_NOT_SET:
      break;
  }
  std::fill(out, out + (end - begin), initializer.constant());  // It is 0 if not set.
}

}  // namespace

void FillInitialValues(const v1::TableSpec& table, uint64_t seed, int64_t begin,
                       absl::Span<float> out) {
  const uint64_t key = MixKey(MixKey(seed, 0), static_cast<uint64_t>(table.table()));
  const int64_t end = begin + static_cast<int64_t>(out.size());
  for (const v1::TensorSpec& tensor : table.tensors()) {
    const int64_t from = std::max(begin, tensor.offset());
    const int64_t to = std::min(end, tensor.offset() + ElementCount(tensor));
    if (from < to) FillTensor(tensor.initializer(), key, from, to, out.data() + (from - begin));
  }
}

}  // namespace capstan
