// FakeDevice: a device without hardware, for tests of code that drives a device. A host backend
// does its arithmetic; its memory and streams misbehave wherever those of a real device might.
//
//   * The host cannot read or write the addresses of device memory (it faults at once), and an op
//     that is given a host address fails. New device memory holds NaN. Addresses are never used
//     again, so that any use of freed memory is an error.
//   * Enqueued work does not run before the host waits, and then only until the wait is satisfied.
//     The seed decides its order among those that streams and events allow. Pinned memory that
//     a copy will write holds NaN until the copy runs.
//   * The first error of enqueued work ends all work; every wait returns this error from then on.
//
// Several fake devices can be joined (fake_collective.h): one may wait for the work of another.
//
// A forgotten upload, a missing event or memory that is used again too early therefore changes the
// results, at least in some order: run a test with several seeds. Update is the only one of
// CudaBackend's own operations that it has.
// Thread safety: as DeviceBackend; a mutex guards enqueued work and waits.
#ifndef CAPSTAN_KERNELS_TESTING_FAKE_DEVICE_H_
#define CAPSTAN_KERNELS_TESTING_FAKE_DEVICE_H_

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cuda/cuda_backend.h"

namespace capstan::kernels {

class FakeCollective;

// Each seed below this one stands for a fixed order of precedence among the streams, and together
// they cover all orders. Other seeds draw the order anew at each step.
inline constexpr uint64_t kFakeDeviceOrders = 6;

class FakeDevice final : public cuda::CudaBackend {
 public:
  struct Options {
    uint64_t seed = 0;
    DataType tensor_type = DataType::kFloat32;
    int64_t memory_bytes = int64_t{1} << 34;  // The size of device memory.
    int index = 0;                            // The number in Label().
    int64_t runs_until_lost = -1;  // Ops that run before the device is lost; < 0: it stays.
  };
  // Counts of the calls so far.
  struct Counts {
    int64_t allocations = 0;  // Allocations of device and pinned memory.
    int64_t runs = 0;         // Ops that ran, also as part of graphs.
    int64_t plain_runs = 0;   // Ops that were enqueued directly, outside of graphs.
    int64_t launches = 0;     // Launches of graphs.
    int64_t copied_bytes = 0;
  };
  // Calls that a test can suppress, to see whether its checks notice: Wait, CopyAsync, Convert or
  // LookUp, Await, and the calls of the collective whose member 0 is this device (kTogether).
  enum class Call { kNone, kWait, kCopy, kConvert, kAwait, kTogether };

  // `host` does the arithmetic, in host memory.
  FakeDevice(std::unique_ptr<Backend> host, const Options& options);
  ~FakeDevice() override;
  FakeDevice(const FakeDevice&) = delete;
  FakeDevice& operator=(const FakeDevice&) = delete;

  const Counts& counts() const { return counts_; }
  // Counts the calls of `call` from now on. Call number `number`, from 0, does nothing (< 0: none).
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
  // Each item of work that ran between the events counts as a microsecond.
  absl::StatusOr<double> SecondsBetween(DeviceEvent& from, DeviceEvent& to) override;

  absl::StatusOr<cuda::CudaDeviceInfo> Info() override;
  absl::Status Update(const cuda::UpdateArgs& args) override;
  absl::Status Zero(void* memory, int64_t bytes) override;
  // All of these return kUnimplemented.
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
  struct EventState {
    int64_t recorded = 0;    // How often the event was recorded.
    int64_t reached = 0;     // The number of the last recording that was reached, from 1.
    int64_t reached_at = 0;  // How many items had run by then.
  };
  struct Event;
  // Runs once recording `times` of `after` was reached, and all members are at the meeting.
  struct Item {
    Work work;
    std::shared_ptr<EventState> after;  // May be null.
    int64_t times = 0;
    int64_t meeting = 0;  // The number of the collective's meeting; 0: none.
  };
  struct Block {
    int64_t bytes = 0;
    std::unique_ptr<std::byte[]> memory;
  };
  using Blocks = std::map<uintptr_t, Block>;

  // Returns the host memory that holds the `bytes` at `address`, an address in `blocks`.
  // Errors: kInvalidArgument  they are not inside one block that is still allocated.
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
  // Runs items until `done`. Errors: the first error of the work; kInternal  nothing can run.
  absl::Status RunUntil(const std::function<bool()>& done);
  // Draws whether other members of the collective run an item before this one does: real devices
  // work independently, too.
  bool OthersAreFirst();
  bool RunOne();          // Runs one item. False: no item can run.
  bool RunOneOfOthers();  // Runs one item of another member. False: no item can run.
  absl::Status WhyNothingRuns() const;
  int PickStream();  // A stream whose first item can run; -1: none.

  // A thread that waits runs work that others have enqueued. Recursive: Free and Copy wait.
  std::recursive_mutex mutex_;
  const std::unique_ptr<Backend> host_;
  const Options options_;
  std::byte* const addresses_;  // A reserved range of addresses that is never accessible.
  uintptr_t next_address_;
  Blocks device_blocks_, pinned_blocks_;
  int64_t used_bytes_ = 0;
  std::array<std::deque<Item>, kStreamCount> queues_;
  FakeCollective* collective_ = nullptr;  // Null unless this device is a member of one.
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
