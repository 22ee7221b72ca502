#include "common/sparse_models/noise_words.h"

#include <cmath>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace capstan {

absl::StatusOr<NoiseWords> NoiseWords::Create(absl::Span<const Word> words, double power) {
  if (words.empty() || words.size() >= size_t{1} << 31) {
    return absl::InvalidArgumentError(
        absl::StrCat("noise words: ", words.size(), " words, expected 1 to 2^31 - 1"));
  }
  if (!(power >= 0 && power <= 1)) {  // NaN is not in the range.
    return absl::InvalidArgumentError(
        absl::StrCat("noise words: power is ", power, ", expected 0 to 1"));
  }
  double sum = 0;
  std::vector<double> shares;  // The share of each slot; their mean becomes 1.
  NoiseWords noise;
  for (const Word& word : words) {
    if (word.count < 1) {
      return absl::InvalidArgumentError(absl::StrCat("noise words: key ", word.key, " has count ",
                                                     word.count, ", expected at least 1"));
    }
    shares.push_back(std::pow(static_cast<double>(word.count), power));
    sum += shares.back();
    noise.keys_.push_back(word.key);
  }
  noise.slots_.resize(words.size());
  std::vector<uint32_t> below, above;  // Slots whose share is below 1, and the others.
  for (uint32_t i = 0; i < shares.size(); ++i) {
    shares[i] *= static_cast<double>(shares.size()) / sum;
    noise.slots_[i].other = i;
    (shares[i] < 1 ? below : above).push_back(i);
  }
  // Each slot with less than 1 is filled up from one that has more.
  while (!below.empty() && !above.empty()) {
    const uint32_t small = below.back();
    const uint32_t large = above.back();
    below.pop_back();
    noise.slots_[small] = {.threshold = static_cast<uint32_t>(shares[small] * 0x1p32),
                           .other = large};
    shares[large] -= 1 - shares[small];
    if (shares[large] < 1) {
      above.pop_back();
      below.push_back(large);
    }
  }
  return noise;  // The slots left differ from 1 only by rounding; each has its own key alone.
}

}  // namespace capstan
