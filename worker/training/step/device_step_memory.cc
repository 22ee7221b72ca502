#include "worker/training/step/device_step_memory.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/random/philox.h"
#include "common/status/status_macros.h"
#include "common/wire/number_format.h"
#include "kernels/tensor_view.h"

namespace capstan::worker {
namespace {

using kernels::DataType;
using kernels::Stream;

// Alignment of each array in its block, in bytes: copies and kernels are fastest with it.
constexpr int64_t kAlignment = 256;
// 4 MiB: copying such a part takes as long as enqueueing hundreds of copies; a shard is as large.
constexpr int64_t kPartElements = 1 << 20;
// A small model is exchanged in this many parts.
constexpr int64_t kParts = 8;

template <typename T>
absl::Span<const std::byte> BytesOf(absl::Span<const T> values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(T)};
}

// "gradient [0, 100)".
std::string ElementsText(const char* what, int64_t begin, int64_t end) {
  return absl::StrCat(what, " [", begin, ", ", end, ")");
}

bool IsHalf(NumberFormat format) { return format != NumberFormat::kFp32; }

DataType DataTypeOf(NumberFormat format) {
  switch (format) {
    case NumberFormat::kBf16:
      return DataType::kBfloat16;
    case NumberFormat::kFp16:
      return DataType::kFloat16;
    default:
      return DataType::kFloat32;
  }
}

int64_t SizeOf(const kernels::TensorView& view) {
  return view.count * kernels::BytesOf(view.dtype);
}

int64_t KeyWordsOf(const ModelPlan& plan) {
  return kKeyWords * std::count_if(plan.layers.begin(), plan.layers.end(), [](const auto& layer) {
           return layer.kind == v1::Layer::kDropout;
         });
}

void CopyFloats(const std::byte* from, absl::Span<float> to) {
  if (!to.empty()) std::memcpy(to.data(), from, to.size() * sizeof(float));
}

}  // namespace

DeviceStepMemory::DeviceStepMemory(const ModelPlan& plan, kernels::DeviceBackend& device,
                                   int64_t batch_size_max, StepRole role,
                                   const ExchangeFormats& formats, StepWatch& watch)
    : StepMemory(device),
      device_(device),
      role_(role),
      formats_(formats),
      watch_(watch),
      parameter_count_(plan.parameter_count),
      statistic_count_(plan.statistic_count),
      sample_values_(plan.input.count()),
      channels_(plan.input.c),
      classes_(plan.classes),
      key_words_(KeyWordsOf(plan)),
      batch_size_max_(batch_size_max),
      tensors_(device.TensorType()) {}

DeviceStepMemory::~DeviceStepMemory() {
  if (pinned_block_ != nullptr) device_.FreePinned(pinned_block_);
  if (device_block_ != nullptr) device_.Free(device_block_);
}

// ---------------------------------------------------------------- memory

int64_t DeviceStepMemory::PlaceArrays(Side side, std::byte* base, int64_t n) {
  int64_t bytes = 0;
  const bool on_device = side == Side::kDevice;
  const auto place = [&](Array& array, int64_t count, DataType dtype = DataType::kFloat32) {
    if (base != nullptr) (on_device ? array.device : array.pinned) = base + bytes;
    bytes += (count * kernels::BytesOf(dtype) + kAlignment - 1) / kAlignment * kAlignment;
  };
  if (on_device || role_ == StepRole::kFirst) {
    place(parameters_, parameter_count_);
    place(gradient_, parameter_count_);
  }
  if (on_device && role_ == StepRole::kFirst) {
    if (IsHalf(formats_.parameters)) {
      place(half_parameters_, parameter_count_, DataTypeOf(formats_.parameters));
    }
    if (IsHalf(formats_.gradients)) {
      place(half_gradient_, parameter_count_, DataTypeOf(formats_.gradients));
    }
  }
  place(statistics_, statistic_count_);
  place(moments_, statistic_count_);
  place(keys_, key_words_, DataType::kInt32);
  for (StagedBatch& batch : staged_) {
    place(batch.images, n * sample_values_);
    place(batch.pixel_values, 256 * channels_);
    place(batch.labels, n, DataType::kInt32);
  }
  if (on_device) {
    if (tensors_ != DataType::kFloat32) place(weights_, parameter_count_, tensors_);
    place(images_, n * sample_values_, tensors_);
    place(labels_, n, DataType::kInt32);
  } else {
    place(loss_array_, n);
    place(logits_array_, n * classes_, tensors_);
  }
  return bytes;
}

int64_t DeviceStepMemory::FixedBytes(int64_t n) { return PlaceArrays(Side::kDevice, nullptr, n); }

absl::Status DeviceStepMemory::Allocate() {
  CAPSTAN_ASSIGN_OR_RETURN(void* const device, device_.TryAllocate(FixedBytes(batch_size_max_)));
  device_block_ = static_cast<std::byte*>(device);
  PlaceArrays(Side::kDevice, device_block_, batch_size_max_);
  CAPSTAN_ASSIGN_OR_RETURN(void* const pinned, device_.AllocatePinned(PlaceArrays(
                                                   Side::kPinned, nullptr, batch_size_max_)));
  pinned_block_ = static_cast<std::byte*>(pinned);
  PlaceArrays(Side::kPinned, pinned_block_, batch_size_max_);
  if (tensors_ == DataType::kFloat32) weights_ = parameters_;
  SetBase(Place::kImages, images_.device);
  SetBase(Place::kLabels, labels_.device);
  SetBase(Place::kParameters, parameters_.device);
  SetBase(Place::kWeights, weights_.device);
  SetBase(Place::kGradient, gradient_.device);
  SetBase(Place::kStatistics, statistics_.device);
  SetBase(Place::kMoments, moments_.device);
  SetBase(Place::kKeys, keys_.device);
  for (std::unique_ptr<kernels::DeviceEvent>* event :
       {&uploaded_, &computed_, &staged_[0].uploaded, &staged_[1].uploaded}) {
    CAPSTAN_ASSIGN_OR_RETURN(*event, device_.MakeEvent());
  }
  return absl::OkStatus();
}

int64_t DeviceStepMemory::part_elements() const {
  return std::clamp<int64_t>(parameter_count_ / kParts, 1, kPartElements);
}

// ---------------------------------------------------------------- to the device

absl::Status DeviceStepMemory::Upload(Stream stream, const Array& to,
                                      absl::Span<const std::byte> from, int64_t offset) {
  if (from.empty()) return absl::OkStatus();
  const auto bytes = static_cast<int64_t>(from.size());
  copies_.Copy(from.data(), bytes, to.pinned + offset);
  return device_.CopyAsync(stream, to.device + offset, to.pinned + offset, bytes);
}

kernels::TensorView DeviceStepMemory::Part(const Array& array, int64_t begin, int64_t end,
                                           DataType dtype) {
  return {array.device + begin * kernels::BytesOf(dtype), end - begin, dtype};
}

char* DeviceStepMemory::PinnedPart(const Array& array, int64_t begin) {
  return reinterpret_cast<char*>(array.pinned + begin * kFloatBytes);
}

absl::Status DeviceStepMemory::UploadBatch(const BatchView& batch, StagedBatch* staged) {
  // The pinned memory of a batch that was uploaded and never used may still be read.
  if (staged->on_its_way) CAPSTAN_RETURN_IF_ERROR(device_.Await(*staged->uploaded));
  staged->name = 0;
  CAPSTAN_RETURN_IF_ERROR(watch_.Begin(Stream::kUpload, StepObserver::Part::kUpload,
                                       [&] { return absl::StrCat("batch of ", batch.n()); }));
  if (batch.pixels.empty()) {
    CAPSTAN_RETURN_IF_ERROR(Upload(Stream::kUpload, staged->images, BytesOf(batch.images), 0));
  } else {
    CAPSTAN_RETURN_IF_ERROR(Upload(Stream::kUpload, staged->images, BytesOf(batch.pixels), 0));
    CAPSTAN_RETURN_IF_ERROR(
        Upload(Stream::kUpload, staged->pixel_values, BytesOf(batch.pixel_values), 0));
  }
  CAPSTAN_RETURN_IF_ERROR(Upload(Stream::kUpload, staged->labels, BytesOf(batch.labels), 0));
  CAPSTAN_RETURN_IF_ERROR(watch_.End(Stream::kUpload));
  CAPSTAN_RETURN_IF_ERROR(device_.Record(*staged->uploaded, Stream::kUpload));
  staged->on_its_way = true;
  staged->name = batch.name;
  return absl::OkStatus();
}

absl::Status DeviceStepMemory::Stage(const BatchView& batch) {
  return UploadBatch(batch, &staged_[1 - in_use_]);
}

absl::Status DeviceStepMemory::UseBatch(const BatchView& batch) {
  in_use_ = 1 - in_use_;
  StagedBatch& staged = staged_[in_use_];
  if (batch.name == 0 || staged.name != batch.name) {
    CAPSTAN_RETURN_IF_ERROR(UploadBatch(batch, &staged));
  }
  staged.name = 0;
  CAPSTAN_RETURN_IF_ERROR(device_.Wait(Stream::kCompute, *staged.uploaded));
  const int64_t values = batch.n() * sample_values_;
  const kernels::TensorView from = {staged.images.device, values, DataType::kFloat32};
  const kernels::TensorView to = {images_.device, values, tensors_};
  if (!batch.pixels.empty()) {
    const auto* const meaning = reinterpret_cast<const float*>(staged.pixel_values.device);
    CAPSTAN_RETURN_IF_ERROR(
        device_.LookUp(Stream::kCompute, staged.images.device, meaning, channels_, to));
  } else if (tensors_ == DataType::kFloat32) {
    CAPSTAN_RETURN_IF_ERROR(
        device_.CopyAsync(Stream::kCompute, to.data, from.data, values * kFloatBytes));
  } else {
    CAPSTAN_RETURN_IF_ERROR(device_.Convert(Stream::kCompute, from, to));
  }
  return device_.CopyAsync(Stream::kCompute, labels_.device, staged.labels.device,
                           batch.n() * kernels::BytesOf(DataType::kInt32));
}

absl::Status DeviceStepMemory::Begin(const ForwardArrays& arrays) {
  forward_ = arrays;
  parts_.clear();
  CAPSTAN_RETURN_IF_ERROR(UseBatch(arrays.batch));
  // These are copied on the steps' own stream: they are small, and come with every evaluation,
  // unlike parameters, or with every step, into memory that graphs read.
  CAPSTAN_RETURN_IF_ERROR(Upload(Stream::kCompute, keys_, BytesOf(arrays.keys), 0));
  return Upload(Stream::kCompute, statistics_, BytesOf(arrays.statistics), 0);
}

void DeviceStepMemory::BeginAgain(absl::Span<float> moments) {
  forward_.moments = moments;
  parts_.clear();
}

absl::Status DeviceStepMemory::UploadParameters(int64_t begin, int64_t end) {
  const auto first = static_cast<size_t>(begin), count = static_cast<size_t>(end - begin);
  const auto [floats, halves] = forward_.parameters;
  CAPSTAN_RETURN_IF_ERROR(watch_.Begin(Stream::kUpload, StepObserver::Part::kUpload,
                                       [&] { return ElementsText("parameters", begin, end); }));
  if (halves.empty()) {
    return Upload(Stream::kUpload, parameters_, BytesOf(floats.subspan(first, count)),
                  begin * kFloatBytes);
  }
  const kernels::TensorView half =
      Part(half_parameters_, begin, end, DataTypeOf(formats_.parameters));
  char* const pinned = PinnedPart(parameters_, begin);
  copies_.Copy(halves.data() + first, SizeOf(half), pinned);
  CAPSTAN_RETURN_IF_ERROR(device_.CopyAsync(Stream::kUpload, half.data, pinned, SizeOf(half)));
  return device_.Convert(Stream::kUpload, half, Part(parameters_, begin, end));
}

absl::Status DeviceStepMemory::UseParameters(int64_t begin, int64_t end) {
  CAPSTAN_RETURN_IF_ERROR(watch_.End(Stream::kUpload));
  CAPSTAN_RETURN_IF_ERROR(device_.Record(*uploaded_, Stream::kUpload));
  CAPSTAN_RETURN_IF_ERROR(device_.Wait(Stream::kCompute, *uploaded_));
  return RoundWeights(begin, end);
}

absl::Status DeviceStepMemory::RoundWeights(int64_t begin, int64_t end) {
  if (tensors_ == DataType::kFloat32) return absl::OkStatus();
  return device_.Convert(Stream::kCompute, Part(parameters_, begin, end),
                         Part(weights_, begin, end, tensors_));
}

absl::Status DeviceStepMemory::UpdateParameters(
    const std::function<absl::Status(float* parameters, const float* gradient)>& update) {
  const auto floats = [](const Array& array) { return reinterpret_cast<float*>(array.device); };
  CAPSTAN_RETURN_IF_ERROR(update(floats(parameters_), floats(gradient_)));
  return RoundWeights(0, parameter_count_);
}

// ---------------------------------------------------------------- and back

absl::Status DeviceStepMemory::ForwardDone(const Operand& loss, const Operand& logits) {
  // Copied on the compute stream: it is small, and the backward pass must not overwrite it before.
  const kernels::TensorView from_loss = Resolve(loss), from_logits = Resolve(logits);
  CAPSTAN_RETURN_IF_ERROR(device_.CopyAsync(Stream::kCompute, loss_array_.pinned, from_loss.data,
                                            loss.count * kFloatBytes));
  CAPSTAN_RETURN_IF_ERROR(device_.CopyAsync(Stream::kCompute, logits_array_.pinned,
                                            from_logits.data,
                                            logits.count * kernels::BytesOf(logits.dtype)));
  loss_ = loss_array_.pinned_f32();
  logits_ = {logits_array_.pinned, logits.count, logits.dtype};
  return device_.CopyAsync(Stream::kCompute, moments_.pinned, moments_.device,
                           static_cast<int64_t>(forward_.moments.size()) * kFloatBytes);
}

void DeviceStepMemory::BeginBackward(const BackwardArrays& arrays) {
  backward_ = arrays;
  gradient_finite_ = true;
}

absl::Status DeviceStepMemory::GradientComputed(int64_t begin, int64_t end) {
  CAPSTAN_RETURN_IF_ERROR(device_.Record(*computed_, Stream::kCompute));
  CAPSTAN_RETURN_IF_ERROR(device_.Wait(Stream::kDownload, *computed_));
  return watch_.Begin(Stream::kDownload, StepObserver::Part::kDownload,
                      [&] { return ElementsText("gradient", begin, end); });
}

absl::Status DeviceStepMemory::TakeGradient(int64_t begin, int64_t end) {
  if (part_events_.size() == parts_.size()) {
    CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<kernels::DeviceEvent> event, device_.MakeEvent());
    part_events_.push_back(std::move(event));
  }
  kernels::DeviceEvent& arrived = *part_events_[parts_.size()];
  kernels::TensorView part = Part(gradient_, begin, end);
  if (IsHalf(formats_.gradients)) {
    const kernels::TensorView half =
        Part(half_gradient_, begin, end, DataTypeOf(formats_.gradients));
    CAPSTAN_RETURN_IF_ERROR(device_.Convert(Stream::kDownload, part, half));
    part = half;
  }
  CAPSTAN_RETURN_IF_ERROR(
      device_.CopyAsync(Stream::kDownload, PinnedPart(gradient_, begin), part.data, SizeOf(part)));
  CAPSTAN_RETURN_IF_ERROR(watch_.End(Stream::kDownload));
  CAPSTAN_RETURN_IF_ERROR(device_.Record(arrived, Stream::kDownload));
  parts_.push_back({.begin = begin, .end = end, .arrived = &arrived});
  return absl::OkStatus();
}

bool DeviceStepMemory::TakePart(int64_t begin, int64_t end) {
  const auto [floats, halves] = backward_.gradient;
  void* const to = IsHalf(formats_.gradients) ? static_cast<void*>(halves.data() + begin)
                                              : static_cast<void*>(floats.data() + begin);
  return copies_.CopyChecked(formats_.gradients, PinnedPart(gradient_, begin), end - begin, to);
}

absl::Status DeviceStepMemory::End() {
  if (backward_.enqueued != nullptr) backward_.enqueued();
  for (const PartOnItsWay& part : parts_) {
    CAPSTAN_RETURN_IF_ERROR(device_.Await(*part.arrived));
    if (!TakePart(part.begin, part.end)) gradient_finite_ = false;
    if (part.begin > 0 && gradient_finite_ && backward_.ready != nullptr) {
      backward_.ready(part.begin);
    }
  }
  CAPSTAN_RETURN_IF_ERROR(device_.Synchronize());
  CopyFloats(moments_.pinned, forward_.moments);
  for (StagedBatch& staged : staged_) staged.on_its_way = false;
  forward_ = {};
  backward_ = {};
  return absl::OkStatus();
}

}  // namespace capstan::worker
