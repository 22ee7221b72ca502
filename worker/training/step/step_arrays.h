// The inputs and outputs of a step of training or evaluation, in the host's memory.
//
// Thread safety: values that borrow their arrays.
#ifndef CAPSTAN_WORKER_TRAINING_STEP_STEP_ARRAYS_H_
#define CAPSTAN_WORKER_TRAINING_STEP_STEP_ARRAYS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/types/span.h"

namespace capstan::worker {

// A decoded batch. Borrowed for the call.
struct BatchView {
  absl::Span<const float> images;    // [n, h, w, c]; empty if `pixels` has the images.
  absl::Span<const int32_t> labels;  // [n]; zeros if labels are numbers.
  // A name of the contents; 0: none. A batch that Network::Stage got under this name is not
  // uploaded again.
  uint64_t name = 0;
  absl::Span<const float> targets = {};  // [n, outputs] if labels are numbers, else empty.
  // Images as bytes, [n, h, w, c], and the bytes' values, [c, 256]. A device's network only.
  absl::Span<const uint8_t> pixels = {};
  absl::Span<const float> pixel_values = {};
  int64_t n() const { return static_cast<int64_t>(labels.size()); }
};

// Parameters in the host's memory, [parameter_count]: as fp32, or as 16-bit values in the format in
// which a device exchanges them (ExchangeFormats). One of the two is empty.
struct ParameterView {
  ParameterView() = default;
  ParameterView(absl::Span<const float> values) : floats(values) {}    // NOLINT
  ParameterView(const std::vector<float>& values) : floats(values) {}  // NOLINT
  explicit ParameterView(absl::Span<const uint16_t> values) : halves(values) {}
  absl::Span<const float> floats;
  absl::Span<const uint16_t> halves;
};

// Room for a gradient, in one of the same two forms.
struct GradientView {
  GradientView() = default;
  GradientView(absl::Span<float> values) : floats(values) {}  // NOLINT
  explicit GradientView(absl::Span<uint16_t> values) : halves(values) {}
  absl::Span<float> floats;
  absl::Span<uint16_t> halves;
};

// Called in the backward pass: every gradient element from `first` on is final and finite, and no
// parameter from there on is read any more. `first` decreases from call to call; there is no call
// at the end of the pass.
using GradientReady = std::function<void(int64_t first)>;

// Called in the forward pass before parameters below `end` are read, with increasing `end`: waits
// for them. Returns false if they will not come; then the pass is given up.
using ParametersNeeded = std::function<bool(int64_t end)>;

// kSame: a step's parameters are those of the step before, which a device still has.
enum class Parameters { kNew, kSame };

struct ForwardArrays {
  BatchView batch;
  ParameterView parameters;
  absl::Span<const float> statistics;  // Evaluation: [statistic_count], running statistics.
  // Training: [statistic_count], overwritten: means and biased variances of the batch.
  absl::Span<float> moments;
  // Training: the keys of Program::masked_layers, kKeyWords each, as WordsOfKey gives them.
  absl::Span<const int32_t> keys;
};

struct BackwardArrays {
  GradientView gradient;           // Overwritten.
  GradientReady ready;             // May be null.
  std::function<void()> enqueued;  // May be null. See Network::Backward.
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_STEP_STEP_ARRAYS_H_
