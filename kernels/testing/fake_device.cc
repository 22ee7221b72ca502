#include "kernels/testing/fake_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/random/philox.h"
#include "common/status/status_macros.h"
#include "kernels/cuda/element_rules.h"
#include "kernels/cuda/half_values.h"
#include "kernels/op_check.h"
#include "kernels/testing/fake_collective.h"

namespace capstan::kernels {
namespace {

constexpr int64_t kAddressBytes = int64_t{1} << 40;
constexpr uintptr_t kAlignment = 256;
constexpr int kPoison = 0xff;  // Bytes that read as NaN in fp32, bf16 and fp16, and as label -1.

class FakePlan : public Plan {
 public:
  FakePlan(std::unique_ptr<Plan> host, const OpSignature& signature)
      : host_(std::move(host)), signature_(signature) {}
  Plan& host() { return *host_; }
  const OpSignature& signature() const { return signature_; }

 private:
  const std::unique_ptr<Plan> host_;
  const OpSignature signature_;
};

std::byte* ReserveAddresses() {
  void* const memory =
      mmap(nullptr, kAddressBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) std::abort();  // The test cannot go on.
  return static_cast<std::byte*>(memory);
}

std::unique_ptr<std::byte[]> Poisoned(int64_t bytes) {
  const size_t size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  std::unique_ptr<std::byte[]> memory(new std::byte[size]);
  std::memset(memory.get(), kPoison, size);
  return memory;
}

// A view and its numbers as the host's backend reads them. `widened` holds a copy in fp32 if the
// view has a type of two bytes.
struct HostView {
  TensorView view;
  std::vector<float> widened;
};

void Widen(HostView& host) {
  host.widened.resize(static_cast<size_t>(host.view.count));
  for (int64_t i = 0; i < host.view.count; ++i) {
    host.widened[static_cast<size_t>(i)] = ValueAt(host.view, i);
  }
}

void Narrow(const float* values, const TensorView& to) {
  auto* const halves = static_cast<uint16_t*>(to.data);
  for (int64_t i = 0; i < to.count; ++i) halves[i] = ToHalf(to.dtype, values[i]);
}

// Stores fp32 numbers in a view of fp32, bf16 or fp16.
void StoreFloats(const float* values, const TensorView& to) {
  if (IsHalf(to.dtype)) return Narrow(values, to);
  std::copy(values, values + to.count, to.f32());
}

TensorView HostOperand(HostView& host) {
  if (!IsHalf(host.view.dtype)) return host.view;
  return ViewOf(host.widened.data(), host.view.count);
}

}  // namespace

FakeDevice::FakeDevice(std::unique_ptr<Backend> host, const Options& options)
    : host_(std::move(host)),
      options_(options),
      addresses_(ReserveAddresses()),
      next_address_(reinterpret_cast<uintptr_t>(addresses_)) {}

FakeDevice::~FakeDevice() { munmap(addresses_, kAddressBytes); }

std::string FakeDevice::Label() const { return absl::StrCat("fake GPU ", options_.index); }

absl::StatusOr<std::unique_ptr<Collective>> FakeDevice::Join(
    absl::Span<DeviceBackend* const> members) {
  return FakeCollective::Create(*this, members);
}

// ---------------------------------------------------------------- memory

void* FakeDevice::Allocate(int64_t bytes) {
  const absl::StatusOr<void*> memory = TryAllocate(bytes);
  return memory.ok() ? *memory : nullptr;
}

absl::StatusOr<void*> FakeDevice::TryAllocate(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes < 0) {
    return absl::InvalidArgumentError(absl::StrCat("memory is ", bytes, " bytes, expected >= 0"));
  }
  if (bytes > options_.memory_bytes - used_bytes_) {
    return absl::ResourceExhaustedError(absl::StrCat("memory needs ", bytes, " bytes, free are ",
                                                     options_.memory_bytes - used_bytes_, " of ",
                                                     options_.memory_bytes));
  }
  ++counts_.allocations;
  used_bytes_ += bytes;
  const uintptr_t address = next_address_;
  // An unused gap behind each block makes accesses beyond its end fail.
  next_address_ += (static_cast<uintptr_t>(bytes) / kAlignment + 2) * kAlignment;
  device_blocks_[address] = {bytes, Poisoned(bytes)};
  return reinterpret_cast<void*>(address);
}

void FakeDevice::Free(void* memory) {
  const std::lock_guard lock(mutex_);
  const auto block = device_blocks_.find(reinterpret_cast<uintptr_t>(memory));
  if (block == device_blocks_.end()) return;
  // Like cudaFree, this waits for all enqueued work first.
  static_cast<void>(Synchronize());
  used_bytes_ -= block->second.bytes;
  device_blocks_.erase(block);
}

absl::StatusOr<void*> FakeDevice::AllocatePinned(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes < 0) {
    return absl::InvalidArgumentError(absl::StrCat("memory is ", bytes, " bytes, expected >= 0"));
  }
  ++counts_.allocations;
  std::unique_ptr<std::byte[]> memory = Poisoned(bytes);
  std::byte* const address = memory.get();
  pinned_blocks_[reinterpret_cast<uintptr_t>(address)] = {bytes, std::move(memory)};
  return address;
}

void FakeDevice::FreePinned(void* memory) {
  const std::lock_guard lock(mutex_);
  pinned_blocks_.erase(reinterpret_cast<uintptr_t>(memory));
}

absl::StatusOr<DeviceMemoryInfo> FakeDevice::Memory() {
  if (absl::IsUnavailable(error_)) return error_;
  return DeviceMemoryInfo{options_.memory_bytes - used_bytes_, options_.memory_bytes};
}

absl::StatusOr<std::byte*> FakeDevice::Find(const Blocks& blocks, const void* address,
                                            int64_t bytes, const char* kind) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  auto block = blocks.upper_bound(at);
  if (block != blocks.begin()) {
    --block;
    const auto offset = static_cast<int64_t>(at - block->first);
    if (offset + bytes <= block->second.bytes) return block->second.memory.get() + offset;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(bytes, " bytes at ", absl::Hex(at), ", expected memory of the ", kind));
}

absl::StatusOr<std::byte*> FakeDevice::FindDevice(const void* address, int64_t bytes) {
  return Find(device_blocks_, address, bytes, "device");
}

absl::StatusOr<std::byte*> FakeDevice::FindAny(const void* address, int64_t bytes) {
  const absl::StatusOr<std::byte*> device = FindDevice(address, bytes);
  if (device.ok()) return device;
  return Find(pinned_blocks_, address, bytes, "device, or pinned");
}

// ---------------------------------------------------------------- work

absl::StatusOr<std::unique_ptr<Plan>> FakeDevice::Prepare(const OpDesc& desc) {
  if (capturing_) return absl::FailedPreconditionError("no op can be prepared while recording");
  CAPSTAN_ASSIGN_OR_RETURN(const OpSignature signature, MakeSignature(desc));
  CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<Plan> host, host_->Prepare(desc));
  return std::make_unique<FakePlan>(std::move(host), WithTensorType(signature, TensorType()));
}

absl::Status FakeDevice::Run(Plan& plan, absl::Span<const TensorView> inputs,
                             absl::Span<const TensorView> outputs, const RunOptions& options) {
  auto* const mine = dynamic_cast<FakePlan*>(&plan);
  if (mine == nullptr) {
    return absl::InvalidArgumentError("the plan was prepared by another backend");
  }
  CAPSTAN_RETURN_IF_ERROR(CheckViews(mine->signature(), inputs, outputs));
  if (!capturing_) ++counts_.plain_runs;
  return EnqueueCompute([this, mine, options,
                         in = std::vector<TensorView>(inputs.begin(), inputs.end()),
                         out = std::vector<TensorView>(outputs.begin(), outputs.end())] {
    return RunNow(*mine, in, out, options);
  });
}

absl::Status FakeDevice::RunNow(Plan& plan, absl::Span<const TensorView> inputs,
                                absl::Span<const TensorView> outputs, const RunOptions& options) {
  if (counts_.runs == options_.runs_until_lost) {
    return absl::UnavailableError(absl::StrCat(Label(), " has fallen off the bus"));
  }
  ++counts_.runs;
  std::vector<HostView> hosts(inputs.size() + outputs.size());
  for (size_t i = 0; i < hosts.size(); ++i) {
    TensorView view = i < inputs.size() ? inputs[i] : outputs[i - inputs.size()];
    if (view.count > 0) {
      CAPSTAN_ASSIGN_OR_RETURN(view.data, FindDevice(view.data, view.count * BytesOf(view.dtype)));
    }
    hosts[i].view = view;
    if (IsHalf(view.dtype)) Widen(hosts[i]);
  }
  std::vector<TensorView> views;
  for (HostView& host : hosts) views.push_back(HostOperand(host));
  const auto all = absl::MakeConstSpan(views);
  CAPSTAN_RETURN_IF_ERROR(host_->Run(static_cast<FakePlan&>(plan).host(), all.first(inputs.size()),
                                     all.subspan(inputs.size()), options));
  for (size_t i = inputs.size(); i < hosts.size(); ++i) {
    if (IsHalf(hosts[i].view.dtype)) Narrow(hosts[i].widened.data(), hosts[i].view);
  }
  return absl::OkStatus();
}

absl::Status FakeDevice::Convert(Stream stream, const TensorView& from, const TensorView& to) {
  if (Forgotten(Call::kConvert)) return absl::OkStatus();
  return EnqueueOn(stream, [this, from, to] { return ConvertNow(from, to); });
}

absl::Status FakeDevice::LookUp(Stream stream, const void* from, const float* table,
                                int64_t channels, const TensorView& to) {
  if (Forgotten(Call::kConvert)) return absl::OkStatus();
  return EnqueueOn(
      stream, [this, from, table, channels, to] { return LookUpNow(from, table, channels, to); });
}

absl::Status FakeDevice::EnqueueOn(Stream stream, Work work) {
  if (stream == Stream::kCompute) return EnqueueCompute(std::move(work));
  if (capturing_) return absl::FailedPreconditionError("only the compute stream is recorded");
  Enqueue(stream, {.work = std::move(work)});
  return absl::OkStatus();
}

absl::Status FakeDevice::ConvertNow(const TensorView& from, const TensorView& to) {
  HostView in{from, {}}, out{to, {}};
  CAPSTAN_ASSIGN_OR_RETURN(in.view.data, FindDevice(from.data, from.count * BytesOf(from.dtype)));
  CAPSTAN_ASSIGN_OR_RETURN(out.view.data, FindDevice(to.data, to.count * BytesOf(to.dtype)));
  if (IsHalf(in.view.dtype)) Widen(in);
  const float* const values = HostOperand(in).f32();
  StoreFloats(values, out.view);
  return absl::OkStatus();
}

absl::Status FakeDevice::LookUpNow(const void* from, const float* table, int64_t channels,
                                   const TensorView& to) {
  TensorView out = to;
  CAPSTAN_ASSIGN_OR_RETURN(const std::byte* const bytes, FindDevice(from, to.count));
  CAPSTAN_ASSIGN_OR_RETURN(const std::byte* const values,
                           FindDevice(table, channels * 256 * BytesOf(DataType::kFloat32)));
  CAPSTAN_ASSIGN_OR_RETURN(out.data, FindDevice(to.data, to.count * BytesOf(to.dtype)));
  std::vector<float> found(static_cast<size_t>(to.count));
  for (int64_t i = 0; i < to.count; ++i) {
    const int64_t at = i % channels * 256 + std::to_integer<int64_t>(bytes[i]);
    std::memcpy(&found[static_cast<size_t>(i)], values + at * 4, 4);
  }
  StoreFloats(found.data(), out);
  return absl::OkStatus();
}

absl::StatusOr<cuda::CudaDeviceInfo> FakeDevice::Info() {
  return cuda::CudaDeviceInfo{.name = Name(),
                              .memory_bytes = options_.memory_bytes,
                              .memory_free_bytes = options_.memory_bytes - used_bytes_};
}

absl::Status FakeDevice::NotHere(const char* operation) {
  return absl::UnimplementedError(absl::StrCat("the fake device has no ", operation));
}

absl::Status FakeDevice::Zero(void* memory, int64_t bytes) {
  return EnqueueCompute([this, memory, bytes]() -> absl::Status {
    CAPSTAN_ASSIGN_OR_RETURN(std::byte* const here, FindDevice(memory, bytes));
    std::memset(here, 0, static_cast<size_t>(bytes));
    return absl::OkStatus();
  });
}

absl::Status FakeDevice::Update(const cuda::UpdateArgs& args) {
  const std::lock_guard lock(mutex_);
  return EnqueueCompute([this, args] { return UpdateNow(args); });
}

absl::Status FakeDevice::UpdateNow(cuda::UpdateArgs args) {
  const int slots = cuda::StateSlotsOf(args.rule);
  const auto find = [&](auto** array) -> absl::Status {
    CAPSTAN_ASSIGN_OR_RETURN(std::byte* const here, FindDevice(*array, args.n * 4));
    *array = reinterpret_cast<float*>(here);
    return absl::OkStatus();
  };
  CAPSTAN_RETURN_IF_ERROR(find(&args.weights));
  CAPSTAN_RETURN_IF_ERROR(find(&args.gradient));
  if (slots > 0) CAPSTAN_RETURN_IF_ERROR(find(&args.s0));
  if (slots > 1) CAPSTAN_RETURN_IF_ERROR(find(&args.s1));
  cuda::WithRule(args.rule, [&args](auto rule) {
    float none = 0;
    for (int64_t i = 0; i < args.n; ++i) {
      args.weights[i] = cuda::Updated<rule()>(args.scalars, args.weights[i], args.gradient[i],
                                              args.s0 == nullptr ? &none : args.s0 + i,
                                              args.s1 == nullptr ? &none : args.s1 + i);
    }
  });
  return absl::OkStatus();
}

absl::Status FakeDevice::Copy(void* to, const void* from, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  CAPSTAN_RETURN_IF_ERROR(Synchronize());
  const absl::StatusOr<std::byte*> device_to = FindDevice(to, bytes);
  const absl::StatusOr<std::byte*> device_from = FindDevice(from, bytes);
  if (bytes > 0) {
    std::memcpy(device_to.ok() ? *device_to : to, device_from.ok() ? *device_from : from,
                static_cast<size_t>(bytes));
  }
  return absl::OkStatus();
}

absl::Status FakeDevice::CopyAsync(Stream stream, void* to, const void* from, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (capturing_) return absl::FailedPreconditionError("a copy is not recorded");
  if (bytes == 0) return absl::OkStatus();
  CAPSTAN_RETURN_IF_ERROR(FindAny(from, bytes).status());
  CAPSTAN_RETURN_IF_ERROR(FindAny(to, bytes).status());
  const absl::StatusOr<std::byte*> pinned = Find(pinned_blocks_, to, bytes, "host");
  if (pinned.ok()) std::memset(*pinned, kPoison, static_cast<size_t>(bytes));
  if (Forgotten(Call::kCopy)) return absl::OkStatus();
  Enqueue(stream, {.work = [this, to, from, bytes]() -> absl::Status {
            CAPSTAN_ASSIGN_OR_RETURN(std::byte* const target, FindAny(to, bytes));
            CAPSTAN_ASSIGN_OR_RETURN(const std::byte* const source, FindAny(from, bytes));
            std::memcpy(target, source, static_cast<size_t>(bytes));
            counts_.copied_bytes += bytes;
            return absl::OkStatus();
          }});
  return absl::OkStatus();
}

}  // namespace capstan::kernels
