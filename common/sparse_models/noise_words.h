// NoiseWords: draws keys with probabilities that are proportional to count^power, in constant time.
//
// It uses Walker's alias method in Vose's form ("A linear algorithm for generating random numbers
// with a given distribution", 1991): each slot holds its own key up to a threshold, and one other
// key above it. power is 0.75 in word2vec. 16 bytes a key.
// Thread safety: constant after construction.
#ifndef CAPSTAN_COMMON_SPARSE_MODELS_NOISE_WORDS_H_
#define CAPSTAN_COMMON_SPARSE_MODELS_NOISE_WORDS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace capstan {

class NoiseWords {
 public:
  struct Word {
    uint64_t key = 0;
    int64_t count = 0;  // >= 1.
  };

  // The draws depend on the order of `words`.
  // Errors: kInvalidArgument  no words, 2^31 or more, a count below 1, power outside [0, 1]; names
  //                           the value.
  static absl::StatusOr<NoiseWords> Create(absl::Span<const Word> words, double power);

  // Draws from two uniform words.
  uint64_t Draw(uint32_t a, uint32_t b) const {
    const auto slot = static_cast<uint32_t>(uint64_t{a} * slots_.size() >> 32);
    return keys_[b < slots_[slot].threshold ? slot : slots_[slot].other];
  }

 private:
  struct Slot {
    uint32_t threshold = UINT32_MAX;
    uint32_t other = 0;
  };

  std::vector<uint64_t> keys_;
  std::vector<Slot> slots_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_SPARSE_MODELS_NOISE_WORDS_H_
