// ExampleBatch: labelled examples whose features are (key, value) pairs, one row after the other.
//
// It holds the rows of a sparse matrix (CSR), each with a label and, if the format has them, a
// fixed number of dense columns. AddDense and AddFeature, in any order, build an example; Finish
// completes it, and Abandon drops it. A parser that finds an error in the middle of a line can
// therefore leave the batch as it was.
//
// Thread safety: thread-compatible.
// Invariants, once no example is open: (1) row_begin() has count() + 1 entries, begins with 0,
//   never decreases and ends with value_count(). (2) keys(), values() and fields() are of one size.
//   (3) dense() has count() * dense_columns() entries.
#ifndef CAPSTAN_COMMON_EXAMPLES_EXAMPLE_BATCH_H_
#define CAPSTAN_COMMON_EXAMPLES_EXAMPLE_BATCH_H_

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace capstan {

// One example of a batch. Points into it: valid until the batch is next changed.
struct ExampleView {
  float label = 0;
  absl::Span<const float> dense;     // [dense_columns].
  absl::Span<const uint64_t> keys;   // [n], as values and fields.
  absl::Span<const float> values;    // [n].
  absl::Span<const int32_t> fields;  // [n].
};

class ExampleBatch {
 public:
  // REQUIRES: dense_columns >= 0.
  explicit ExampleBatch(int64_t dense_columns = 0) { Reset(dense_columns); }

  // Forgets all examples, keeps the memory.
  void Clear() { Reset(dense_columns_); }
  // Same as Clear, and sets the number of dense columns.
  void Reset(int64_t dense_columns);

  // Adds a feature to the open example. Keys keep the order of these calls.
  void AddFeature(uint64_t key, float value, int32_t field) {
    keys_.push_back(key);
    values_.push_back(value);
    fields_.push_back(field);
  }
  void AddDense(float value) { dense_.push_back(value); }  // For the next dense column.

  // Completes the open example. REQUIRES: AddDense was called dense_columns() times for it.
  void Finish(float label) {
    labels_.push_back(label);
    row_begin_.push_back(static_cast<int64_t>(keys_.size()));
    assert(dense_.size() == labels_.size() * static_cast<size_t>(dense_columns_));
  }
  // Drops the open example, if there is one.
  void Abandon() { Truncate(count()); }

  // Forgets the examples from `count` on, and the open one. REQUIRES: 0 <= count <= count().
  void Truncate(int64_t count);
  // Appends the examples [begin, end) of `from`. REQUIRES: 0 <= begin <= end <= from.count(), the
  // same dense columns, no open example in either, &from != this.
  void Append(const ExampleBatch& from, int64_t begin, int64_t end);

  int64_t count() const { return static_cast<int64_t>(labels_.size()); }
  int64_t dense_columns() const { return dense_columns_; }
  int64_t value_count() const { return static_cast<int64_t>(keys_.size()); }

  absl::Span<const float> labels() const { return labels_; }          // [count].
  absl::Span<const float> dense() const { return dense_; }            // [count, dense_columns].
  absl::Span<const int64_t> row_begin() const { return row_begin_; }  // [count + 1].
  absl::Span<const uint64_t> keys() const { return keys_; }           // [value_count].
  absl::Span<const float> values() const { return values_; }          // [value_count].
  // The column of each key, counted from 0 over the columns that give keys. [value_count].
  absl::Span<const int32_t> fields() const { return fields_; }

  // REQUIRES: 0 <= index < count().
  ExampleView example(int64_t index) const;

 private:
  int64_t dense_columns_ = 0;
  std::vector<float> labels_;
  std::vector<float> dense_;
  std::vector<int64_t> row_begin_;
  std::vector<uint64_t> keys_;
  std::vector<float> values_;
  std::vector<int32_t> fields_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_EXAMPLES_EXAMPLE_BATCH_H_
