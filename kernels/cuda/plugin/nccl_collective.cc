#include "kernels/cuda/plugin/nccl_collective.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "kernels/cuda/plans/status.h"
#include "kernels/cuda/plugin/nccl_library.h"

namespace capstan::kernels::cuda {
namespace {

class NcclCollective final : public Collective {
 public:
  NcclCollective(const NcclLibrary& nccl, std::vector<Device*> devices)
      : nccl_(nccl), devices_(std::move(devices)), communicators_(devices_.size()) {}

  ~NcclCollective() override {
    for (Device* const device : devices_) device->set_watch(nullptr);
    for (const ncclComm_t communicator : communicators_) {
      if (communicator != nullptr) nccl_.comm_destroy(communicator);
    }
  }

  absl::Status Initialize() {
    std::vector<int> indices;
    for (const Device* device : devices_) indices.push_back(device->options().device);
    CAPSTAN_RETURN_IF_ERROR(
        StatusOf(nccl_.comm_init_all(communicators_.data(), static_cast<int>(indices.size()),
                                     indices.data()),
                 "joining GPUs by NCCL"));
    for (Device* const device : devices_) {
      device->set_watch([this] { return Watch(); });
    }
    return absl::OkStatus();
  }

  absl::Status Broadcast(Stream stream, absl::Span<float* const> arrays, int64_t count) override {
    return Together("broadcasting", stream, arrays, count, [&](size_t i, cudaStream_t on) {
      return nccl_.broadcast(arrays[i], arrays[i], static_cast<size_t>(count), ncclFloat32, 0,
                             communicators_[i], on);
    });
  }

  absl::Status Reduce(Stream stream, absl::Span<float* const> arrays, int64_t count) override {
    return Together("reducing", stream, arrays, count, [&](size_t i, cudaStream_t on) {
      return nccl_.reduce(arrays[i], arrays[i], static_cast<size_t>(count), ncclFloat32, ncclSum, 0,
                          communicators_[i], on);
    });
  }

  absl::Status AllReduce(Stream stream, absl::Span<float* const> arrays, int64_t count) override {
    return Together("reducing for all", stream, arrays, count, [&](size_t i, cudaStream_t on) {
      return nccl_.all_reduce(arrays[i], arrays[i], static_cast<size_t>(count), ncclFloat32,
                              ncclSum, communicators_[i], on);
    });
  }

  absl::Status ReduceScatter(Stream stream, absl::Span<float* const> arrays,
                             int64_t count) override {
    return Together("reducing parts", stream, arrays, count, [&](size_t i, cudaStream_t on) {
      return nccl_.reduce_scatter(arrays[i], PartOf(arrays, i, count), static_cast<size_t>(count),
                                  ncclFloat32, ncclSum, communicators_[i], on);
    });
  }

  absl::Status AllGather(Stream stream, absl::Span<float* const> arrays, int64_t count) override {
    return Together("gathering parts", stream, arrays, count, [&](size_t i, cudaStream_t on) {
      return nccl_.all_gather(PartOf(arrays, i, count), arrays[i], static_cast<size_t>(count),
                              ncclFloat32, communicators_[i], on);
    });
  }

 private:
  // The address of part i of array i.
  static float* PartOf(absl::Span<float* const> arrays, size_t i, int64_t count) {
    return arrays[i] + static_cast<int64_t>(i) * count;
  }

  // Enqueues `call` for every device, as one group.
  template <typename Call>
  absl::Status Together(const char* what, Stream stream, absl::Span<float* const> arrays,
                        int64_t count, const Call& call) {
    if (arrays.size() != devices_.size() || count < 0) {
      return absl::InvalidArgumentError(absl::StrCat(what, " ", arrays.size(), " arrays of ", count,
                                                     ", expected ", devices_.size(), " of >= 0"));
    }
    for (const Device* device : devices_) {
      if (device->capturing()) {
        return absl::FailedPreconditionError(absl::StrCat(what, " is not recorded"));
      }
    }
    CAPSTAN_RETURN_IF_ERROR(broken_);
    if (count == 0) return absl::OkStatus();
    ncclResult_t result = nccl_.group_start();
    for (size_t i = 0; i < devices_.size() && result == ncclSuccess; ++i) {
      result = call(i, devices_[i]->stream(stream));
    }
    const ncclResult_t ended = nccl_.group_end();  // Also after an error: the group must be closed.
    const absl::Status status = StatusOf(result == ncclSuccess ? ended : result, what);
    if (!status.ok()) Break(status);
    return status;
  }

  // Checks that all members still work. A member that waits calls it.
  absl::Status Watch() {
    CAPSTAN_RETURN_IF_ERROR(broken_);
    absl::Status status;
    for (size_t i = 0; i < devices_.size() && status.ok(); ++i) {
      status = Annotate(devices_[i]->Check(), absl::StrCat("while it waits for ", NameOf(i)));
    }
    for (size_t i = 0; i < devices_.size() && status.ok(); ++i) {
      ncclResult_t error = ncclSuccess;
      const ncclResult_t asked = nccl_.comm_get_async_error(communicators_[i], &error);
      if (asked != ncclSuccess) error = asked;
      if (error == ncclInProgress) continue;
      status = StatusOf(error, absl::StrCat("NCCL on ", NameOf(i)));
    }
    if (!status.ok()) Break(status);
    return status;
  }

  // NCCL's status, Explained by the first lost device, if there is one.
  absl::Status StatusOf(ncclResult_t result, absl::string_view what) const {
    absl::Status status = nccl_.StatusOf(result, what);
    for (size_t i = 0; i < devices_.size() && !status.ok() && !absl::IsUnavailable(status); ++i) {
      status = Explained(status, Annotate(devices_[i]->Check(), NameOf(i)));
    }
    return status;
  }

  std::string NameOf(size_t i) const { return absl::StrCat("GPU ", devices_[i]->options().device); }

  // Aborts all communicators: otherwise enqueued work would wait for a lost device for ever.
  void Break(const absl::Status& status) {
    broken_ = status;
    for (ncclComm_t& communicator : communicators_) {
      if (communicator != nullptr) nccl_.comm_abort(std::exchange(communicator, nullptr));
    }
  }

  const NcclLibrary nccl_;
  const std::vector<Device*> devices_;
  std::vector<ncclComm_t> communicators_;  // One per device.
  absl::Status broken_;                    // Why the communicators are aborted; OK if they are not.
};

}  // namespace

absl::StatusOr<std::unique_ptr<Collective>> MakeNcclCollective(std::vector<Device*> devices) {
  CAPSTAN_ASSIGN_OR_RETURN(const NcclLibrary nccl, NcclLibrary::Load());
  auto collective = std::make_unique<NcclCollective>(nccl, std::move(devices));
  CAPSTAN_RETURN_IF_ERROR(collective->Initialize());
  return std::unique_ptr<Collective>(std::move(collective));
}

}  // namespace capstan::kernels::cuda
