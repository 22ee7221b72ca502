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
constexpr int64_t kAlignedFloats = 64;  // Arrays begin at multiples of 256 bytes.
// At most this many updates are in flight: one gradient is uploaded, one is in the rule, one result
// is downloaded, and the host fills and empties as many meanwhile. Each takes 8 MiB of pinned
// memory and 4 MiB of the card's, from the first time that so many are in flight.
constexpr size_t kSlots = 8;

struct Slot;

// A shard's last update.
struct UpdateOnItsWay {
  absl::Span<float> values;  // The new weights go here. Empty: nobody wants them any more.
  Slot* slot = nullptr;      // Null: it has been waited for, or there was none.
  absl::Status outcome;      // It is valid once it has been waited for.
};

// The buffers and events that an update needs beside its shard's arrays.
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
  void* gradient = nullptr;  // It is in the card's memory.
  void* pinned = nullptr;
  std::unique_ptr<kernels::DeviceEvent> uploaded, updated, downloaded;
  enum class State {
    kFree,
    kFilled,    // A thread writes a gradient to it, without the card's mutex.
    kOnItsWay,  // The update is enqueued.
    kEmptied,   // A thread waits for the update and takes the weights, without the card's mutex.
  };
  State state = State::kFree;
  UpdateOnItsWay* user = nullptr;  // It is set while the state is kOnItsWay.
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
  using Slots = std::vector<std::unique_ptr<Slot>>;
  Slots::iterator Find(Slot::State state) {
    return std::find_if(slots.begin(), slots.end(),
                        [state](const auto& slot) { return slot->state == state; });
  }
  // Returns a free slot, a new one, or the one with the oldest update, for which it waits. The
  // slot's state is kFilled.
  Slot& TakeSlot() {
    for (;;) {
      auto taken = Find(Slot::State::kFree);
      if (taken == slots.end() && slots.size() < kSlots && AddSlot().ok()) taken = slots.end() - 1;
      if (taken != slots.end()) {
        std::rotate(taken, taken + 1, slots.end());
        slots.back()->state = Slot::State::kFilled;
        return *slots.back();
      }
      const auto oldest = Find(Slot::State::kOnItsWay);
      if (oldest != slots.end()) {
        Complete(**oldest);
      } else {
        mutex.Await(absl::Condition(this, &Card::IsAnyLeft));
      }
    }
  }
  bool IsAnyLeft() {
    return Find(Slot::State::kFree) != slots.end() || Find(Slot::State::kOnItsWay) != slots.end();
  }
  // Both functions release the mutex while they wait. The first REQUIRES: the slot is kOnItsWay.
  void Complete(Slot& slot) {
    slot.state = Slot::State::kEmptied;
    UpdateOnItsWay& update = *std::exchange(slot.user, nullptr);
    const absl::Span<float> values = update.values;
    mutex.Unlock();
    absl::Status outcome = backend->Await(*slot.downloaded);
    if (outcome.ok() && !values.empty()) {
      std::memcpy(values.data(), slot.down(), values.size() * sizeof(float));
    }
    mutex.Lock();
    update.outcome = std::move(outcome);
    update.slot = nullptr;
    slot.state = Slot::State::kFree;
  }
  void Complete(UpdateOnItsWay& update) {
    if (update.slot != nullptr && update.slot->state == Slot::State::kOnItsWay) {
      Complete(*update.slot);
    }
    // Another thread that wants the slot may be completing the update.
    mutex.Await(absl::Condition(
        +[](UpdateOnItsWay* waited) { return waited->slot == nullptr; }, &update));
  }

  absl::Mutex mutex;  // It is held while a member below is used, except for the backend's Await.
  const std::unique_ptr<CudaBackend> backend;
  Slots slots;  // There is at least one. The slot that was taken last is last.
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
    Slot* slot = nullptr;
    {
      absl::MutexLock lock(&card_.mutex);
      slot = &card_.TakeSlot();
    }
    gradient(slot->up());
    absl::MutexLock lock(&card_.mutex);
    const absl::Status status = Enqueue(step, *slot);
    if (status.ok()) {
      update_ = {.values = values, .slot = slot};
      slot->user = &update_;
    }
    slot->state = status.ok() ? Slot::State::kOnItsWay : Slot::State::kFree;
    return status;
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
  // REQUIRES: the card's mutex is held.
  absl::Status Enqueue(int64_t step, Slot& slot) {
    CudaBackend& backend = *card_.backend;
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
    return absl::OkStatus();
  }
  int64_t bytes() const { return elements_ * kFloatBytes; }
  float* Array(int index) const { return block_ + index * Stride(elements_); }

  Card& card_;
  const int64_t elements_;
  OptimizerConfig rule_;
  float* const block_;     // Weights, then the state's slots.
  UpdateOnItsWay update_;  // The last update. The card's mutex guards it.
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
