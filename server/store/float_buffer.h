// FloatBuffer: an owned array of floats, aligned for vector loads; allocation can fail without a
// throw. It can be lent to messages that are being sent: a writer checks lent() first.
//
// Thread safety: thread-compatible; what is lent may be given back by any thread.
#ifndef CAPSTAN_SERVER_STORE_FLOAT_BUFFER_H_
#define CAPSTAN_SERVER_STORE_FLOAT_BUFFER_H_

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
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
    buffer.block_ = std::make_shared<Block>();
    buffer.block_->data = static_cast<float*>(std::aligned_alloc(kAlignment, rounded));
    if (buffer.data() == nullptr) {
      return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes"));
    }
    return buffer;
  }

  float* data() { return block_ == nullptr ? nullptr : block_->data; }
  const float* data() const { return block_ == nullptr ? nullptr : block_->data; }
  int64_t size() const { return count_; }
  absl::Span<float> span() { return absl::MakeSpan(data(), static_cast<size_t>(count_)); }
  absl::Span<const float> span() const {
    return absl::MakeConstSpan(data(), static_cast<size_t>(count_));
  }

  // The floats as bytes, without a copy; they live as long as the Cord does, even without this
  // object. They must not be written meanwhile.
  absl::Cord Lend() const {
    if (count_ == 0) return {};
    block_->lent.fetch_add(1, std::memory_order_relaxed);
    const absl::string_view bytes(reinterpret_cast<const char*>(data()),
                                  static_cast<size_t>(count_) * sizeof(float));
    return absl::MakeCordFromExternal(
        bytes, [block = block_] { block->lent.fetch_sub(1, std::memory_order_release); });
  }
  // Some of what was lent has not been given back.
  bool lent() const {
    return block_ != nullptr && block_->lent.load(std::memory_order_acquire) > 0;
  }

 private:
  struct Block {
    Block() = default;
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    ~Block() { std::free(data); }
    float* data = nullptr;
    std::atomic<int> lent = 0;
  };
  std::shared_ptr<Block> block_;  // Null: empty.
  int64_t count_ = 0;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORE_FLOAT_BUFFER_H_
