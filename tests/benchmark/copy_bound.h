// CopyBound: what memcpy allows for dense push + pull over shared memory: the copies that ours
// makes and the add, without messages, processes and locks.
//
//   gradient --copy--> buffer --add--> table --copy--> buffer --copy--> values
//
// Two threads take pieces of 4 MiB; each has a buffer of its own, which stays in the cache.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_BENCHMARK_COPY_BOUND_H_
#define CAPSTAN_TESTS_BENCHMARK_COPY_BOUND_H_

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "absl/status/status.h"
#include "tests/benchmark/at_once.h"

namespace capstan::benchmark {

class CopyBound {
 public:
  static constexpr int kCopies = 3;

  // The gradient is borrowed.
  explicit CopyBound(const std::vector<float>& gradient)
      : gradient_(gradient), table_(gradient.size()), values_(gradient.size()) {
    for (auto& buffer : buffers_) buffer.resize(kPiece);
  }

  // One push + pull of everything.
  absl::Status Run() {
    return RunAtOnce(kThreads, [this](size_t thread) {
      for (size_t begin = thread * kPiece; begin < table_.size(); begin += kThreads * kPiece) {
        RunPiece(begin, std::min(kPiece, table_.size() - begin), buffers_[thread].data());
      }
      return absl::OkStatus();
    });
  }

  const std::vector<float>& values() const { return values_; }

 private:
  static constexpr size_t kThreads = 2;
  static constexpr size_t kPiece = (4 << 20) / sizeof(float);

  void RunPiece(size_t begin, size_t count, float* buffer) {
    const size_t bytes = count * sizeof(float);
    float* table = table_.data() + begin;
    std::memcpy(buffer, gradient_.data() + begin, bytes);
    for (size_t i = 0; i < count; ++i) table[i] += buffer[i];
    std::memcpy(buffer, table, bytes);
    std::memcpy(values_.data() + begin, buffer, bytes);
  }

  const std::vector<float>& gradient_;
  std::vector<float> table_, values_;
  std::vector<float> buffers_[kThreads];
};

}  // namespace capstan::benchmark

#endif  // CAPSTAN_TESTS_BENCHMARK_COPY_BOUND_H_
