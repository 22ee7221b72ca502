#include "kernels/backend_group.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace capstan::kernels {

BackendGroup::BackendGroup(std::unique_ptr<Backend> backend) {
  backends_.push_back(std::move(backend));
}

absl::StatusOr<BackendGroup> BackendGroup::Join(
    std::vector<std::unique_ptr<DeviceBackend>> devices) {
  if (devices.empty()) return absl::InvalidArgumentError("no device to join, expected some");
  std::vector<DeviceBackend*> members;
  for (const std::unique_ptr<DeviceBackend>& device : devices) {
    if (device->TensorType() != devices[0]->TensorType()) {
      return absl::InvalidArgumentError(
          absl::StrCat(device->Label(), " has tensors of another type than ", devices[0]->Label()));
    }
    members.push_back(device.get());
  }
  CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<Collective> collective, members[0]->Join(members));
  BackendGroup group(std::move(devices[0]));
  for (size_t i = 1; i < devices.size(); ++i) group.backends_.push_back(std::move(devices[i]));
  group.collective_ = std::move(collective);
  return group;
}

std::vector<size_t> BackendGroup::Silent() const {
  std::vector<size_t> silent;
  for (size_t i = 0; i < backends_.size(); ++i) {
    DeviceBackend* const device = backends_[i]->device();
    if (device != nullptr && !device->Memory().ok()) silent.push_back(i);
  }
  return silent;
}

}  // namespace capstan::kernels
