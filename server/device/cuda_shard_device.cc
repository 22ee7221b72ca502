#include "server/device/cuda_shard_device.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "kernels/cuda/loader.h"
#include "server/device/update_scalars.h"
#include "server/optimizer/optimizer.h"
#include "server/optimizer/step_scalars.h"

namespace capstan::server {
namespace {

using kernels::Stream;
using kernels::cuda::CudaBackend;
using kernels::cuda::UpdateRule;

constexpr int kIndexMax = 63;
constexpr int64_t kFloatBytes = 4;
constexpr int64_t kAlignedFloats = 64;  // Where arrays begin: 256 bytes.

std::optional<UpdateRule> RuleOf(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kSgd:
      return UpdateRule::kSgd;
    case OptimizerKind::kMomentum:
      return UpdateRule::kMomentum;
    case OptimizerKind::kNesterov:
      return UpdateRule::kNesterov;
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW:
      return UpdateRule::kAdam;
    default:
      return std::nullopt;
  }
}

// The card, shared by its shards.
struct Card {
  explicit Card(std::unique_ptr<CudaBackend> the_backend) : backend(std::move(the_backend)) {}
  ~Card() {
    uploaded.reset();
    updated.reset();
    downloaded.reset();
    if (device_gradient != nullptr) backend->Free(device_gradient);
    if (pinned != nullptr) backend->FreePinned(pinned);
  }
  absl::Status Prepare() {
    const int64_t bytes = ShardDevice::kElementsMax * kFloatBytes;
    CAPSTAN_ASSIGN_OR_RETURN(void* const device, backend->TryAllocate(bytes));
    device_gradient = static_cast<float*>(device);
    CAPSTAN_ASSIGN_OR_RETURN(void* const host, backend->AllocatePinned(2 * bytes));
    pinned = static_cast<float*>(host);
    for (auto* event : {&uploaded, &updated, &downloaded}) {
      CAPSTAN_ASSIGN_OR_RETURN(*event, backend->MakeEvent());
    }
    return absl::OkStatus();
  }
  float* pinned_up() const { return pinned; }
  float* pinned_down() const { return pinned + ShardDevice::kElementsMax; }

  absl::Mutex mutex;  // Held while anything below is used.
  const std::unique_ptr<CudaBackend> backend;
  float* device_gradient = nullptr;
  float* pinned = nullptr;
  std::unique_ptr<kernels::DeviceEvent> uploaded, updated, downloaded;
};

class CudaShard final : public DeviceShard {
 public:
  CudaShard(Card& card, int64_t elements, const OptimizerConfig& rule, float* block)
      : card_(card), elements_(elements), rule_(rule), block_(block) {}
  ~CudaShard() override {
    absl::MutexLock lock(&card_.mutex);
    card_.backend->Free(block_);
  }

  absl::Status Write(absl::Span<const float> weights,
                     absl::Span<const absl::Span<const float>> state) override {
    absl::MutexLock lock(&card_.mutex);
    CAPSTAN_RETURN_IF_ERROR(card_.backend->Copy(Array(0), weights.data(), bytes()));
    for (size_t slot = 0; slot < state.size(); ++slot) {
      CAPSTAN_RETURN_IF_ERROR(
          card_.backend->Copy(Array(static_cast<int>(slot) + 1), state[slot].data(), bytes()));
    }
    return absl::OkStatus();
  }

  absl::Status Update(int64_t step, const std::function<void(float*)>& gradient,
                      absl::Span<float> values) override {
    absl::MutexLock lock(&card_.mutex);
    CudaBackend& backend = *card_.backend;
    gradient(card_.pinned_up());
    CAPSTAN_RETURN_IF_ERROR(
        backend.CopyAsync(Stream::kUpload, card_.device_gradient, card_.pinned_up(), bytes()));
    CAPSTAN_RETURN_IF_ERROR(backend.Record(*card_.uploaded, Stream::kUpload));
    CAPSTAN_RETURN_IF_ERROR(backend.Wait(Stream::kCompute, *card_.uploaded));
    const int slots = StateSlots(rule_);
    CAPSTAN_RETURN_IF_ERROR(
        backend.Update({.rule = *RuleOf(rule_.kind),
                        .scalars = UpdateScalarsOf(MakeStepScalars(rule_, step)),
                        .n = elements_,
                        .weights = Array(0),
                        .gradient = card_.device_gradient,
                        .s0 = slots > 0 ? Array(1) : nullptr,
                        .s1 = slots > 1 ? Array(2) : nullptr}));
    CAPSTAN_RETURN_IF_ERROR(backend.Record(*card_.updated, Stream::kCompute));
    CAPSTAN_RETURN_IF_ERROR(backend.Wait(Stream::kDownload, *card_.updated));
    CAPSTAN_RETURN_IF_ERROR(
        backend.CopyAsync(Stream::kDownload, card_.pinned_down(), Array(0), bytes()));
    CAPSTAN_RETURN_IF_ERROR(backend.Record(*card_.downloaded, Stream::kDownload));
    CAPSTAN_RETURN_IF_ERROR(backend.Await(*card_.downloaded));
    std::memcpy(values.data(), card_.pinned_down(), static_cast<size_t>(bytes()));
    return absl::OkStatus();
  }

  void SetLearningRateFactor(double factor) override { rule_.learning_rate_factor = factor; }

  absl::Status ReadState(int slot, absl::Span<float> to) override {
    absl::MutexLock lock(&card_.mutex);
    return card_.backend->Copy(to.data(), Array(slot + 1), bytes());
  }

  static int64_t Stride(int64_t elements) {
    return (elements + kAlignedFloats - 1) / kAlignedFloats * kAlignedFloats;
  }

 private:
  int64_t bytes() const { return elements_ * kFloatBytes; }
  float* Array(int index) const { return block_ + index * Stride(elements_); }

  Card& card_;
  const int64_t elements_;
  OptimizerConfig rule_;
  float* const block_;  // Weights, then the state's slots.
};

class CudaShardDevice final : public ShardDevice {
 public:
  CudaShardDevice(std::string name, std::unique_ptr<CudaBackend> backend)
      : name_(std::move(name)), card_(std::move(backend)) {}
  absl::Status Prepare() { return card_.Prepare(); }

  std::string Name() const override { return name_; }
  bool Knows(const OptimizerConfig& rule) const override { return RuleOf(rule.kind).has_value(); }
  absl::StatusOr<std::unique_ptr<DeviceShard>> Make(int64_t elements,
                                                    const OptimizerConfig& rule) override {
    const int64_t arrays = 1 + StateSlots(rule);
    absl::MutexLock lock(&card_.mutex);
    absl::StatusOr<void*> block =
        card_.backend->TryAllocate(arrays * CudaShard::Stride(elements) * kFloatBytes);
    if (!block.ok()) return Annotate(block.status(), name_);
    return std::make_unique<CudaShard>(card_, elements, rule, static_cast<float*>(*block));
  }

 private:
  const std::string name_;
  Card card_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ShardDevice>> MakeCudaShardDevice(
    std::string name, std::unique_ptr<CudaBackend> backend) {
  auto device = std::make_unique<CudaShardDevice>(std::move(name), std::move(backend));
  CAPSTAN_RETURN_IF_ERROR(device->Prepare());
  return device;
}

absl::StatusOr<std::unique_ptr<ShardDevice>> OpenShardDevice(absl::string_view device) {
  if (device == "cpu") return nullptr;
  int index = 0;
  absl::string_view rest = device;
  const bool cuda = absl::ConsumePrefix(&rest, "cuda");
  const bool indexed = absl::ConsumePrefix(&rest, ":");
  if (!cuda || (indexed ? !absl::SimpleAtoi(rest, &index) : !rest.empty()) || index < 0 ||
      index > kIndexMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("got \"", device,
                     "\", expected \"cpu\", \"cuda\" or \"cuda:<index>\", index 0 to ", kIndexMax));
  }
  absl::StatusOr<std::unique_ptr<CudaBackend>> backend =
      kernels::cuda::OpenCudaBackend({.device = index});
  if (!backend.ok()) return Annotate(backend.status(), absl::StrCat("GPU ", index));
  return MakeCudaShardDevice(absl::StrCat("cuda:", index), *std::move(backend));
}

}  // namespace capstan::server
