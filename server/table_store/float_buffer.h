// FloatBuffer: an owned array of floats, aligned for vector loads; allocation can fail without a
// throw.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SERVER_TABLE_STORE_FLOAT_BUFFER_H_
#define CAPSTAN_SERVER_TABLE_STORE_FLOAT_BUFFER_H_

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace capstan::server {

class FloatBuffer {
 public:
  FloatBuffer() = default;  // Empty.

  // An array of `count` floats with unspecified values. REQUIRES: count >= 0.
  // Errors: kResourceExhausted  no memory; names the bytes.
  static absl::StatusOr<FloatBuffer> Allocate(int64_t count) {
    constexpr size_t kAlignment = 64;
    const size_t bytes = static_cast<size_t>(count) * sizeof(float);
    const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    FloatBuffer buffer;
    buffer.count_ = count;
    if (count == 0) return buffer;
    buffer.data_.reset(static_cast<float*>(std::aligned_alloc(kAlignment, rounded)));
    if (buffer.data_ == nullptr) {
      return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes"));
    }
    return buffer;
  }

  float* data() { return data_.get(); }
  const float* data() const { return data_.get(); }
  int64_t size() const { return count_; }
  absl::Span<float> span() { return absl::MakeSpan(data_.get(), static_cast<size_t>(count_)); }
  absl::Span<const float> span() const {
    return absl::MakeConstSpan(data_.get(), static_cast<size_t>(count_));
  }

 private:
  struct Free {
    void operator()(float* data) const { std::free(data); }
  };
  std::unique_ptr<float[], Free> data_;
  int64_t count_ = 0;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_TABLE_STORE_FLOAT_BUFFER_H_
