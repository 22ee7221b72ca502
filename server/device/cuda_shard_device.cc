#include "server/device/cuda_shard_device.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "kernels/cuda/element_rules.h"
#include "kernels/cuda/loader.h"
#include "server/optimizer/optimizer.h"
#include "server/optimizer/step_scalars.h"

namespace capstan::server {
namespace {

using kernels::Stream;
using kernels::cuda::CudaBackend;

constexpr int kIndexMax = 63;
constexpr int64_t kFloatBytes = 4;
constexpr int64_t kAlignedFloats = 64;  // Where arrays begin: 256 bytes.
// So many updates may be on their way: a gradient goes up, one is in the rule, one comes down, and
// the host fills and empties as many meanwhile. Each takes 8 MiB of pinned memory and 4 of the
// card's, from the first time on that so many are on their way.
constexpr size_t kSlots = 8;

// An update that has been enqueued and not waited for.
struct UpdateOnItsWay {
  absl::Span<float> values;  // Where the new weights go; empty: nobody wants them any more.
  absl::Status outcome;      // Once it has been waited for.
};

// What an update needs beside its shard's arrays.
struct Slot {
  explicit Slot(CudaBackend& the_backend) : backend(the_backend) {}
  ~Slot() {
    if (gradient != nullptr) backend.Free(gradient);
    if (pinned != nullptr) backend.FreePinned(pinned);
  }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;
  absl::Status Prepare() {
    constexpr int64_t kBytes = ShardDevice::kElementsMax * kFloatBytes;
    CAPSTAN_ASSIGN_OR_RETURN(gradient, backend.TryAllocate(kBytes));
    CAPSTAN_ASSIGN_OR_RETURN(pinned, backend.AllocatePinned(2 * kBytes));
    for (auto* event : {&uploaded, &updated, &downloaded}) {
      CAPSTAN_ASSIGN_OR_RETURN(*event, backend.MakeEvent());
    }
    return absl::OkStatus();
  }
  float* up() const { return static_cast<float*>(pinned); }
  float* down() const { return up() + ShardDevice::kElementsMax; }

  CudaBackend& backend;
  void* gradient = nullptr;  // The card's.
  void* pinned = nullptr;
  std::unique_ptr<kernels::DeviceEvent> uploaded, updated, downloaded;
  UpdateOnItsWay* user = nullptr;  // Null: it is free.
};

// The card, shared by its shards.
struct Card {
  explicit Card(std::unique_ptr<CudaBackend> the_backend) : backend(std::move(the_backend)) {}

  // Errors: kResourceExhausted  the device has no memory for it.
  absl::Status AddSlot() {
    auto slot = std::make_unique<Slot>(*backend);
    CAPSTAN_RETURN_IF_ERROR(slot->Prepare());
    slots.push_back(std::move(slot));
    return absl::OkStatus();
  }
  // A free one, or a new one, or that whose update is the oldest: waits for it.
  Slot& TakeSlot() {
    const auto free = std::find_if(slots.begin(), slots.end(),
                                   [](const auto& slot) { return slot->user == nullptr; });
    const bool added = free == slots.end() && slots.size() < kSlots && AddSlot().ok();
    if (!added) {
      const auto taken = free == slots.end() ? slots.begin() : free;
      std::rotate(taken, taken + 1, slots.end());
    }
    Complete(*slots.back());
    return *slots.back();
  }
  void Complete(Slot& slot) {
    if (slot.user == nullptr) return;
    UpdateOnItsWay& update = *std::exchange(slot.user, nullptr);
    update.outcome = backend->Await(*slot.downloaded);
    if (!update.outcome.ok() || update.values.empty()) return;
    std::memcpy(update.values.data(), slot.down(), update.values.size() * sizeof(float));
  }
  void Complete(const UpdateOnItsWay& update) {
    for (const std::unique_ptr<Slot>& slot : slots) {
      if (slot->user == &update) Complete(*slot);
    }
  }

  absl::Mutex mutex;  // Held while anything below is used.
  const std::unique_ptr<CudaBackend> backend;
  std::vector<std::unique_ptr<Slot>> slots;  // At least one; the one that was taken last is last.
};

class CudaShard final : public DeviceShard {
 public:
  CudaShard(Card& card, int64_t elements, const OptimizerConfig& rule, float* block)
      : card_(card), elements_(elements), rule_(rule), block_(block) {}
  ~CudaShard() override {
    absl::MutexLock lock(&card_.mutex);
    update_.values = {};
    card_.Complete(update_);
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
    Slot& slot = card_.TakeSlot();
    gradient(slot.up());
    CAPSTAN_RETURN_IF_ERROR(backend.CopyAsync(Stream::kUpload, slot.gradient, slot.up(), bytes()));
    CAPSTAN_RETURN_IF_ERROR(backend.Record(*slot.uploaded, Stream::kUpload));
    CAPSTAN_RETURN_IF_ERROR(backend.Wait(Stream::kCompute, *slot.uploaded));
    const int slots = StateSlots(rule_);
    CAPSTAN_RETURN_IF_ERROR(backend.Update({.rule = RuleOf(rule_),
                                            .scalars = MakeStepScalars(rule_, step),
                                            .n = elements_,
                                            .weights = Array(0),
                                            .gradient = static_cast<float*>(slot.gradient),
                                            .s0 = slots > 0 ? Array(1) : nullptr,
                                            .s1 = slots > 1 ? Array(2) : nullptr}));
    CAPSTAN_RETURN_IF_ERROR(backend.Record(*slot.updated, Stream::kCompute));
    CAPSTAN_RETURN_IF_ERROR(backend.Wait(Stream::kDownload, *slot.updated));
    CAPSTAN_RETURN_IF_ERROR(backend.CopyAsync(Stream::kDownload, slot.down(), Array(0), bytes()));
    CAPSTAN_RETURN_IF_ERROR(backend.Record(*slot.downloaded, Stream::kDownload));
    update_ = {.values = values};
    slot.user = &update_;
    return absl::OkStatus();
  }

  absl::Status Finish() override {
    absl::MutexLock lock(&card_.mutex);
    card_.Complete(update_);
    return update_.outcome;
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
  float* const block_;     // Weights, then the state's slots.
  UpdateOnItsWay update_;  // The last one; under the card's mutex.
};

class CudaShardDevice final : public ShardDevice {
 public:
  CudaShardDevice(std::string name, std::unique_ptr<CudaBackend> backend)
      : name_(std::move(name)), card_(std::move(backend)) {}
  absl::Status Prepare() { return card_.AddSlot(); }

  std::string Name() const override { return name_; }
  bool Knows(const OptimizerConfig& rule) const override {
    return kernels::cuda::TraitsOf(RuleOf(rule)).on_device;
  }
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
