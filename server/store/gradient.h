// Gradient: the content of a push for one shard: numbers in the format in which they arrived, and
// in a sparse table the keys of their rows.
//
// Thread safety: a value. Borrows the memory of its numbers.
#ifndef CAPSTAN_SERVER_STORE_GRADIENT_H_
#define CAPSTAN_SERVER_STORE_GRADIENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/wire/wire_values.h"

namespace capstan::server {

// Keys of one bucket of a sparse table, in ascending order of their hash. Null: the shard is dense.
using RowKeys = std::shared_ptr<const std::vector<uint64_t>>;

class Gradient {
 public:
  Gradient() = default;                                                 // Empty.
  explicit Gradient(WireValues values) : values_(std::move(values)) {}  // One number per element.
  explicit Gradient(absl::Span<const float> values) : values_(values) {}
  Gradient(RowKeys keys, WireValues values)  // One row per key.
      : keys_(std::move(keys)), values_(std::move(values)) {}

  const RowKeys& shared_keys() const { return keys_; }
  absl::Span<const uint64_t> keys() const {
    return keys_ == nullptr ? absl::Span<const uint64_t>() : absl::MakeConstSpan(*keys_);
  }
  const WireValues& values() const { return values_; }

  // The size in the encoding of records: the keys (fixed64), then the numbers as fp32. AppendTo
  // writes that.
  int64_t bytes() const {
    return static_cast<int64_t>(keys().size() * sizeof(uint64_t)) +
           values_.size() * int64_t{sizeof(float)};
  }
  void AppendTo(std::string* bytes) const {
    bytes->append(reinterpret_cast<const char*>(keys().data()), keys().size() * sizeof(uint64_t));
    values_.AppendTo(bytes);
  }

 private:
  RowKeys keys_;
  WireValues values_;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORE_GRADIENT_H_
