// CopyBound: what memcpy allows for dense push + pull over shared memory: the copies that ours
// makes and the add, by two threads that hand each other pieces of 4 MiB, without messages.
//
//   worker:  gradient --copy--> slot                               slot --copy--> values
//   server:                     slot --add--> table --copy--> slot
//
// Both sides work at the same time, each on what the other one has finished; as many slots as ours.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_BENCHMARK_BASELINE_COPY_BOUND_H_
#define CAPSTAN_TESTS_BENCHMARK_BASELINE_COPY_BOUND_H_

#include <sched.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <vector>

#include "absl/status/status.h"
#include "common/status/status_macros.h"
#include "tests/benchmark/at_once.h"
#include "tests/benchmark/processor_time.h"

namespace capstan::benchmark {

class CopyBound {
 public:
  static constexpr int kCopies = 3;

  // The gradient is borrowed. REQUIRES: whole pieces.
  explicit CopyBound(const std::vector<float>& gradient)
      : gradient_(gradient),
        table_(gradient.size()),
        values_(gradient.size()),
        slots_(2 * kSlots * kPiece),
        pieces_(gradient.size() / kPiece) {}

  // Each is a push + pull of everything.
  absl::Status Run(int iterations) {
    for (int i = 0; i < iterations; ++i) CAPSTAN_RETURN_IF_ERROR(RunOnce());
    return absl::OkStatus();
  }
  double Processor() const { return ProcessorSeconds(); }

 private:
  absl::Status RunOnce() {
    pushed_ = added_ = pulled_ = 0;
    return RunAtOnce(2, [this](size_t side) {
      if (side == 0) {
        RunWorker();
      } else {
        RunServer();
      }
      return absl::OkStatus();
    });
  }

  static constexpr size_t kSlots = 4;  // Slots of each direction.
  static constexpr size_t kPiece = (4 << 20) / sizeof(float);
  static constexpr size_t kPieceBytes = kPiece * sizeof(float);

  float* PushSlot(size_t piece) { return slots_.data() + piece % kSlots * kPiece; }
  float* PullSlot(size_t piece) { return slots_.data() + (kSlots + piece % kSlots) * kPiece; }

  void RunWorker() {
    size_t push = 0;
    while (pulled_ < pieces_) {
      if (push < pieces_ && push < added_ + kSlots && push < pulled_ + kSlots) {
        std::memcpy(PushSlot(push), gradient_.data() + push * kPiece, kPieceBytes);
        pushed_ = ++push;
      } else if (pulled_ < added_) {
        std::memcpy(values_.data() + pulled_ * kPiece, PullSlot(pulled_), kPieceBytes);
        ++pulled_;
      } else {
        sched_yield();
      }
    }
  }

  void RunServer() {
    for (size_t piece = 0; piece < pieces_; ++piece) {
      while (pushed_ <= piece) sched_yield();
      float* table = table_.data() + piece * kPiece;
      const float* slot = PushSlot(piece);
      for (size_t i = 0; i < kPiece; ++i) table[i] += slot[i];
      std::memcpy(PullSlot(piece), table, kPieceBytes);
      ++added_;
    }
  }

  const std::vector<float>& gradient_;
  std::vector<float> table_, values_, slots_;
  const size_t pieces_;
  std::atomic<size_t> pushed_ = 0, added_ = 0, pulled_ = 0;  // Pieces.
};

}  // namespace capstan::benchmark

#endif  // CAPSTAN_TESTS_BENCHMARK_BASELINE_COPY_BOUND_H_
