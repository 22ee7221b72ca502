// BatchLoader: makes a batch of chosen samples of a dataset: scaled, normalised, augmented.
//
// A pixel byte p of channel c becomes (p / 255 - mean[c]) / std[c]. The 256 possible values of each
// channel are computed once per batch in fp64 and looked up, so that the bits do not depend on the
// compiler's contraction or vectorisation. A device gets the bytes, a quarter of the fp32 size, and
// looks the values up itself.
//
// Augmentation (training only) draws from Philox4x32(key, 0) with the key of (seed, epoch, sample),
//   key = MixKey(MixKey(MixKey(seed, 2), epoch), sample):
//   word 0, 1  rows and columns cut off at the top and left of the padded image, each uniform in
//              [0, 2 * crop_padding]: (word * (2 * crop_padding + 1)) >> 32;
//   word 2     mirrored if the highest bit is set.
// Padding consists of pixels of value 0 before normalisation; the crop comes before the mirror.
// Thread safety: pure functions.
#ifndef CAPSTAN_WORKER_DATA_BATCH_LOADER_H_
#define CAPSTAN_WORKER_DATA_BATCH_LOADER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/data/dataset.h"
#include "proto/job.pb.h"

namespace capstan::worker {

struct Augmentation {
  std::vector<float> mean;       // One per channel; empty: 0.
  std::vector<float> std;        // One per channel, > 0; empty: 1.
  int32_t crop_padding = 0;      // Pixels on each side, >= 0. 0: no crop.
  bool horizontal_flip = false;  // Mirror with probability 1/2.
};

// The job's augmentation for images of `channels` channels.
// Errors: kInvalidArgument  mean or std has neither 0 nor `channels` values; a mean is not finite;
//                           a std is not finite and > 0; crop_padding is below 0.
absl::StatusOr<Augmentation> MakeAugmentation(const v1::Augmentation& spec, int64_t channels);

// Decodes `samples` (indices in the dataset) in their order.
//   images  [samples.size(), h, w, c]  overwritten
//   labels  [samples.size()]           overwritten; with zeros if labels are numbers
// `epoch`, `seed` are used in training only; otherwise nothing is cropped or mirrored.
// REQUIRES: every sample < dataset.count; `augmentation` fits the dataset's channels.
void LoadBatch(const Dataset& dataset, absl::Span<const uint32_t> samples, int32_t epoch,
               uint64_t seed, const Augmentation& augmentation, bool training, float* images,
               int32_t* labels);
// Same as above, but gives bytes: cropped and mirrored, not yet looked up in PixelValues.
void LoadBatch(const Dataset& dataset, absl::Span<const uint32_t> samples, int32_t epoch,
               uint64_t seed, const Augmentation& augmentation, bool training, uint8_t* pixels,
               int32_t* labels);

// The value of each byte in each channel: [channels, 256].
std::vector<float> PixelValues(const Augmentation& augmentation, int64_t channels);

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_DATA_BATCH_LOADER_H_
