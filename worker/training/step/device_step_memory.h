// DeviceStepMemory: StepMemory on a device. It owns device arrays, pinned memory for them, and the
// events between copies and steps.
//
// Batches have two places, so that the next one is uploaded while a step reads the one before. The
// compute stream copies a batch to the address at which the steps read it, because a recorded graph
// always reads at the same address. Thread safety: used by one thread at a time.
#ifndef CAPSTAN_WORKER_TRAINING_STEP_DEVICE_STEP_MEMORY_H_
#define CAPSTAN_WORKER_TRAINING_STEP_DEVICE_STEP_MEMORY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/model/model_plan.h"
#include "kernels/device_backend.h"
#include "worker/training/step/host_copies.h"
#include "worker/training/step/step_memory.h"

namespace capstan::worker {

class DeviceStepMemory final : public StepMemory {
 public:
  // See StepMemory::Create.
  DeviceStepMemory(const ModelPlan& plan, kernels::DeviceBackend& device, int64_t batch_size_max,
                   StepRole role, const ExchangeFormats& formats, StepWatch& watch);
  ~DeviceStepMemory() override;

  int64_t FixedBytes(int64_t n) override;
  absl::Status Allocate() override;
  int64_t part_elements() const override;
  absl::Status Begin(const ForwardArrays& arrays) override;
  void BeginAgain(absl::Span<float> moments) override;
  absl::Status UploadParameters(int64_t begin, int64_t end) override;
  absl::Status UseParameters(int64_t begin, int64_t end) override;
  absl::Status ForwardDone(const Operand& loss, const Operand& logits) override;
  void BeginBackward(const BackwardArrays& arrays) override;
  absl::Status GradientComputed(int64_t begin, int64_t end) override;
  absl::Status TakeGradient(int64_t begin, int64_t end) override;
  absl::Status UpdateParameters(
      const std::function<absl::Status(float* parameters, const float* gradient)>& update) override;
  absl::Status End() override;
  absl::Status Stage(const BatchView& batch) override;

 private:
  // An array that lies on the device, in pinned memory, or in both.
  struct Array {
    std::byte* device = nullptr;
    std::byte* pinned = nullptr;
    float* pinned_f32() const { return reinterpret_cast<float*>(pinned); }
  };
  struct StagedBatch {
    Array images, labels;     // fp32 or bytes, int32.
    Array pixel_values;       // [channels, 256]: the values of bytes.
    uint64_t name = 0;        // 0: a later step cannot use it.
    bool on_its_way = false;  // The upload may not have ended.
    std::unique_ptr<kernels::DeviceEvent> uploaded;
  };
  // A part of the gradient on its way.
  struct PartOnItsWay {
    int64_t begin = 0, end = 0;
    kernels::DeviceEvent* arrived = nullptr;
  };
  enum class Side { kDevice, kPinned };
  static constexpr int64_t kFloatBytes = 4;

  // Gives every array its place on `side`, in a block at `base` (null: only counts), for batches of
  // `n`. Returns the bytes.
  int64_t PlaceArrays(Side side, std::byte* base, int64_t n);
  absl::Status Upload(kernels::Stream stream, const Array& to, absl::Span<const std::byte> from,
                      int64_t offset);
  // Copies a part that has arrived to the caller's array; returns true if it is finite.
  bool TakePart(int64_t begin, int64_t end);
  // Elements [begin, end) of an array on the device: parameters_, gradient_ or their 16-bit forms.
  static kernels::TensorView Part(const Array& array, int64_t begin, int64_t end,
                                  kernels::DataType dtype = kernels::DataType::kFloat32);
  // The pinned memory for elements from `begin` on, in fp32 or a smaller format.
  static char* PinnedPart(const Array& array, int64_t begin);
  absl::Status UseBatch(const BatchView& batch);
  // Converts parameters [begin, end) to the weights that the steps read.
  absl::Status RoundWeights(int64_t begin, int64_t end);
  absl::Status UploadBatch(const BatchView& batch, StagedBatch* staged);

  kernels::DeviceBackend& device_;
  const StepRole role_;
  const ExchangeFormats formats_;
  StepWatch& watch_;
  const int64_t parameter_count_, statistic_count_, sample_values_, channels_, classes_;
  const int64_t key_words_;  // Words of the keys of all masks that the model's layers draw.
  const int64_t batch_size_max_;
  const kernels::DataType tensors_;
  HostCopies copies_;
  std::byte* device_block_ = nullptr;
  std::byte* pinned_block_ = nullptr;

  Array parameters_, weights_, gradient_, statistics_, moments_, keys_;
  Array images_, labels_;            // The steps read these; not pinned.
  Array loss_array_, logits_array_;  // Pinned only.
  // Arrays in the formats of formats_, on the device only. Their pinned memory is that of the fp32
  // arrays.
  Array half_parameters_, half_gradient_;
  std::array<StagedBatch, 2> staged_;
  size_t in_use_ = 0;  // Index in staged_: the batch that the step reads.
  std::unique_ptr<kernels::DeviceEvent> uploaded_, computed_;
  std::vector<std::unique_ptr<kernels::DeviceEvent>> part_events_;

  // The current step.
  ForwardArrays forward_;
  BackwardArrays backward_;
  std::vector<PartOnItsWay> parts_;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_STEP_DEVICE_STEP_MEMORY_H_
