// FakeDevice: a device without hardware, for tests of code that drives one: its arithmetic is a
// host backend's, its memory and its streams misbehave wherever a real device's might.
//
//   * Device memory has addresses that the host cannot read or write (a fault, at once), and a host
//     address given to an op is an error. It holds NaN at first; addresses are never used again, so
//     that what is used after it was freed is an error.
//   * Nothing that is enqueued runs before the host waits, and then no more than the wait needs, in
//     an order drawn from the seed among those that streams and events allow. Pinned memory that
//     a copy will write holds NaN until then.
//   * The first error of an op ends all work, and every wait from then on returns it.
//
// Several of them can be joined (fake_collective.h): what one waits for may be another one's work.
//
// So a forgotten upload, a missing event or memory used again too early changes results, in some
// order at least: run with several seeds. Of a GPU's own operations it has updates.
// Thread safety: used by one thread.
#ifndef CAPSTAN_KERNELS_TESTING_FAKE_DEVICE_H_
#define CAPSTAN_KERNELS_TESTING_FAKE_DEVICE_H_

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cuda/cuda_backend.h"

namespace capstan::kernels {

class FakeCollective;

// Seeds below this one stand for all orders of precedence among the streams; those from it on draw
// anew at each step.
inline constexpr uint64_t kFakeDeviceOrders = 6;

class FakeDevice final : public cuda::CudaBackend {
 public:
  struct Options {
    uint64_t seed = 0;
    DataType tensor_type = DataType::kFloat32;
    int64_t memory_bytes = int64_t{1} << 34;  // Of the device.
    int index = 0;                            // For its name.
    int64_t runs_until_lost = -1;  // After so many ops it answers no more; < 0: it stays.
  };
  // What was asked for so far.
  struct Counts {
    int64_t allocations = 0;  // Of device and pinned memory.
    int64_t runs = 0;         // Ops that ran, in graphs too.
    int64_t plain_runs = 0;   // Ops that were enqueued by themselves, in no graph.
    int64_t launches = 0;     // Of graphs.
    int64_t copied_bytes = 0;
  };
  // Calls that a test takes away to see whether that is noticed: the `number`-th, from 0, of Wait,
  // CopyAsync, or Convert and LookUp does nothing. kTogether: of its collective, in which it is the
  // first.
  enum class Call { kNone, kWait, kCopy, kConvert, kAwait, kTogether };

  // `host` computes in host memory.
  FakeDevice(std::unique_ptr<Backend> host, const Options& options);
  ~FakeDevice() override;
  FakeDevice(const FakeDevice&) = delete;
  FakeDevice& operator=(const FakeDevice&) = delete;

  const Counts& counts() const { return counts_; }
  // Counts calls of `call` from now on, and forgets to do number `number` (< 0: none).
  void Forget(Call call, int64_t number);
  int64_t calls_counted() const { return calls_counted_; }

  std::string Name() const override { return "fake device"; }
  std::string Label() const override;
  absl::StatusOr<std::unique_ptr<Collective>> Join(
      absl::Span<DeviceBackend* const> members) override;
  DataType TensorType() const override { return options_.tensor_type; }
  bool Supports(const OpDesc& desc) const override { return host_->Supports(desc); }
  absl::StatusOr<std::unique_ptr<Plan>> Prepare(const OpDesc& desc) override;
  absl::Status Run(Plan& plan, absl::Span<const TensorView> inputs,
                   absl::Span<const TensorView> outputs, const RunOptions& options) override;
  void* Allocate(int64_t bytes) override;
  void Free(void* memory) override;
  absl::Status Copy(void* to, const void* from, int64_t bytes) override;
  absl::Status Synchronize() override;

  absl::StatusOr<DeviceMemoryInfo> Memory() override;
  absl::StatusOr<void*> TryAllocate(int64_t bytes) override;
  absl::StatusOr<void*> AllocatePinned(int64_t bytes) override;
  void FreePinned(void* memory) override;
  absl::Status CopyAsync(Stream stream, void* to, const void* from, int64_t bytes) override;
  absl::Status Convert(Stream stream, const TensorView& from, const TensorView& to) override;
  absl::Status LookUp(Stream stream, const void* from, const float* table, int64_t channels,
                      const TensorView& to) override;
  absl::StatusOr<std::unique_ptr<DeviceEvent>> MakeEvent(EventUse use) override;
  absl::Status Record(DeviceEvent& event, Stream stream) override;
  absl::Status Wait(Stream stream, DeviceEvent& event) override;
  absl::Status Await(DeviceEvent& event) override;
  // In microseconds: how many items of work ran between.
  absl::StatusOr<double> SecondsBetween(DeviceEvent& from, DeviceEvent& to) override;

  absl::StatusOr<cuda::CudaDeviceInfo> Info() override;
  absl::Status Update(const cuda::UpdateArgs& args) override;
  absl::Status Zero(void* memory, int64_t bytes) override;
  // Errors: kUnimplemented, all of them.
  absl::Status Cast(const cuda::CastArgs&) override { return NotHere("Cast"); }
  absl::Status Norm(const cuda::NormArgs&) override { return NotHere("Norm"); }
  absl::Status Quantize(const cuda::QuantizeArgs&) override { return NotHere("Quantize"); }
  absl::Status Dequantize(const cuda::DequantizeArgs&) override { return NotHere("Dequantize"); }
  absl::Status SelectTopK(const cuda::TopKArgs&) override { return NotHere("SelectTopK"); }

  absl::Status BeginCapture() override;
  absl::StatusOr<std::unique_ptr<DeviceGraph>> EndCapture() override;

 private:
  friend class FakeCollective;
  friend class FakeGraph;
  using Work = std::function<absl::Status()>;
  // How often an event was recorded, and how often that was reached.
  struct EventState {
    int64_t recorded = 0;
    int64_t reached = 0;
    int64_t reached_at = 0;  // Items that had run by then.
  };
  struct Event;
  // Runs once `after` was reached `times` times, and all members have come to the meeting.
  struct Item {
    Work work;
    std::shared_ptr<EventState> after;  // May be null.
    int64_t times = 0;
    int64_t meeting = 0;  // Of the collective; 0: none.
  };
  struct Block {
    int64_t bytes = 0;
    std::unique_ptr<std::byte[]> memory;
  };
  using Blocks = absl::btree_map<uintptr_t, Block>;

  // The host's memory behind `bytes` at an address of either kind.
  // Errors: kInvalidArgument  they are not in one block that is still there.
  absl::StatusOr<std::byte*> Find(const Blocks& blocks, const void* address, int64_t bytes,
                                  const char* kind);
  absl::StatusOr<std::byte*> FindDevice(const void* address, int64_t bytes);
  absl::StatusOr<std::byte*> FindAny(const void* address, int64_t bytes);
  absl::Status RunNow(Plan& plan, absl::Span<const TensorView> inputs,
                      absl::Span<const TensorView> outputs, const RunOptions& options);
  static absl::Status NotHere(const char* operation);
  absl::Status UpdateNow(cuda::UpdateArgs args);
  absl::Status ConvertNow(const TensorView& from, const TensorView& to);
  absl::Status LookUpNow(const void* from, const float* table, int64_t channels,
                         const TensorView& to);
  absl::Status EnqueueOn(Stream stream, Work work);
  void Enqueue(Stream stream, Item item);
  absl::Status EnqueueCompute(Work work);
  bool Forgotten(Call call);
  // Runs items until `done`. Errors: the first of the work; kInternal  nothing can run.
  absl::Status RunUntil(const std::function<bool()>& done);
  // Whether others of the collective, whose work goes on by itself, are to run before this one.
  bool OthersAreFirst();
  bool RunOne();          // False: no item can run.
  bool RunOneOfOthers();  // Of the collective; likewise.
  absl::Status WhyNothingRuns() const;
  int PickStream();  // Whose first item can run; -1: none.

  const std::unique_ptr<Backend> host_;
  const Options options_;
  std::byte* const addresses_;  // Reserved, never accessible.
  uintptr_t next_address_;
  Blocks device_blocks_, pinned_blocks_;
  int64_t used_bytes_ = 0;
  std::array<std::deque<Item>, kStreamCount> queues_;
  FakeCollective* collective_ = nullptr;  // That it is a member of.
  uint64_t draws_ = 0;
  int64_t items_run_ = 0;
  bool capturing_ = false;
  std::vector<Work> captured_;
  absl::Status error_;
  Counts counts_;
  Call forget_ = Call::kNone;
  int64_t forget_number_ = -1;
  int64_t calls_counted_ = 0;
};

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_TESTING_FAKE_DEVICE_H_
