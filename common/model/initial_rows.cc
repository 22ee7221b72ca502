#include "common/model/initial_rows.h"

#include <algorithm>
#include <array>

#include "common/random/normal.h"
#include "common/random/philox.h"
#include "common/types/instruction_set.h"

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
  return initializer.constant();  // It is 0 if not set.
}

}  // namespace

RowInitializer::RowInitializer(const v1::Initializer& initializer, uint64_t seed, TableId table,
                               int64_t dim, int64_t zero_columns)
    : kind_(initializer.kind_case()),
      scale_(ScaleOf(initializer)),
      stream_(MixKey(MixKey(seed, 0), static_cast<uint64_t>(table.value()))),
      dim_(dim),
      zero_columns_(zero_columns) {}

void RowInitializer::Fill(absl::Span<const uint64_t> keys, absl::Span<float* const> rows) const {
  if (kind_ == v1::Initializer::kNormalStd) {
    FillNormal(keys, rows);
  } else {
    for (size_t i = 0; i < keys.size(); ++i) {
      if (kind_ == v1::Initializer::kUniformBound) {
        FillUniform(keys[i], rows[i]);
      } else {
        std::fill_n(rows[i], dim_, scale_);
      }
    }
  }
  for (float* const row : rows) std::fill_n(row, zero_columns_, 0.0f);
}

void RowInitializer::FillUniform(uint64_t key, float* row) const {
  std::array<uint32_t, 4> words{};
  for (int64_t c = 0; c < dim_; ++c) {
    if (c % 4 == 0) words = Philox4x32(stream_, key, static_cast<uint64_t>(2 + c / 4));
    row[c] = (2.0f * ToUnitFloat(words[static_cast<size_t>(c % 4)]) - 1.0f) * scale_;
  }
}

void RowInitializer::FillNormal(absl::Span<const uint64_t> keys,
                                absl::Span<float* const> rows) const {
  std::array<NormalPair, 128> pairs;
  struct Place {
    size_t row = 0;
    int64_t column = 0;
  };
  const auto pass = [dim = dim_](Place* place) {
    place->column += 2;
    if (place->column >= dim) *place = {.row = place->row + 1};
  };
  Place drawn, written;
  while (written.row < rows.size()) {
    size_t count = 0;
    for (; count < pairs.size() && drawn.row < keys.size(); pass(&drawn)) {
      pairs[count++] = {.counter_low = keys[drawn.row],
                        .counter_high = static_cast<uint64_t>(2 + drawn.column / 2)};
    }
    FillNormals(BestInstructionSet(), stream_, double{scale_}, absl::MakeSpan(pairs.data(), count));
    for (size_t i = 0; i < count; ++i, pass(&written)) {
      float* const out = rows[written.row] + written.column;
      out[0] = pairs[i].first;
      if (written.column + 1 < dim_) out[1] = pairs[i].second;
    }
  }
}

}  // namespace capstan
