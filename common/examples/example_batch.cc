#include "common/examples/example_batch.h"

namespace capstan {
namespace {

template <typename T>
void AppendPart(const std::vector<T>& from, size_t begin, size_t end, std::vector<T>& to) {
  to.insert(to.end(), from.begin() + static_cast<std::ptrdiff_t>(begin),
            from.begin() + static_cast<std::ptrdiff_t>(end));
}

}  // namespace

void ExampleBatch::Reset(int64_t dense_columns) {
  assert(dense_columns >= 0);
  dense_columns_ = dense_columns;
  labels_.clear();
  dense_.clear();
  row_begin_.assign(1, 0);
  keys_.clear();
  values_.clear();
  fields_.clear();
}

void ExampleBatch::Truncate(int64_t count) {
  assert(count >= 0 && count <= this->count());
  const auto rows = static_cast<size_t>(count);
  const auto values = static_cast<size_t>(row_begin_[rows]);
  labels_.resize(rows);
  dense_.resize(rows * static_cast<size_t>(dense_columns_));
  row_begin_.resize(rows + 1);
  keys_.resize(values);
  values_.resize(values);
  fields_.resize(values);
}

void ExampleBatch::Append(const ExampleBatch& from, int64_t begin, int64_t end) {
  assert(0 <= begin && begin <= end && end <= from.count());
  assert(dense_columns_ == from.dense_columns_ && &from != this);
  const auto row = static_cast<size_t>(begin);
  const auto row_end = static_cast<size_t>(end);
  const auto columns = static_cast<size_t>(dense_columns_);
  const auto value = static_cast<size_t>(from.row_begin_[row]);
  const auto value_end = static_cast<size_t>(from.row_begin_[row_end]);
  const int64_t shift = row_begin_.back() - from.row_begin_[row];
  AppendPart(from.labels_, row, row_end, labels_);
  AppendPart(from.dense_, row * columns, row_end * columns, dense_);
  for (size_t i = row + 1; i <= row_end; ++i) row_begin_.push_back(from.row_begin_[i] + shift);
  AppendPart(from.keys_, value, value_end, keys_);
  AppendPart(from.values_, value, value_end, values_);
  AppendPart(from.fields_, value, value_end, fields_);
}

ExampleView ExampleBatch::example(int64_t index) const {
  assert(index >= 0 && index < count());
  const auto row = static_cast<size_t>(index);
  const auto columns = static_cast<size_t>(dense_columns_);
  const auto begin = static_cast<size_t>(row_begin_[row]);
  const size_t size = static_cast<size_t>(row_begin_[row + 1]) - begin;
  return {.label = labels_[row],
          .dense = dense().subspan(row * columns, columns),
          .keys = keys().subspan(begin, size),
          .values = values().subspan(begin, size),
          .fields = fields().subspan(begin, size)};
}

}  // namespace capstan
