// BackendGroup: owns the backends that compute one network: a single backend, or several devices of
// one host, each of which computes a part of every batch. The trainer (worker/training) uses it.
//
// Thread safety: one thread at a time uses the group and its backends.
#ifndef CAPSTAN_KERNELS_BACKEND_GROUP_H_
#define CAPSTAN_KERNELS_BACKEND_GROUP_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/collective.h"
#include "kernels/device_backend.h"

namespace capstan::kernels {

class BackendGroup {
 public:
  explicit BackendGroup(std::unique_ptr<Backend> backend);

  // Makes a group of one or more devices with a collective, in which devices[i] is member i.
  // Errors: kInvalidArgument  `devices` is empty, or the devices' TensorType() differ.
  //         else              those of DeviceBackend::Join.
  static absl::StatusOr<BackendGroup> Join(std::vector<std::unique_ptr<DeviceBackend>> devices);

  BackendGroup(BackendGroup&&) = default;
  // A move assignment would free the old members before their collective.
  BackendGroup& operator=(BackendGroup&&) = delete;

  size_t size() const { return backends_.size(); }  // >= 1.
  Backend& operator[](size_t member) const { return *backends_[member]; }
  // Null if the group holds a single backend that was not joined.
  Collective* collective() const { return collective_.get(); }
  // Asks every device, and returns the members that no longer answer, in ascending order. A backend
  // that computes on the host always counts as answering.
  std::vector<size_t> Silent() const;

 private:
  std::vector<std::unique_ptr<Backend>> backends_;
  std::unique_ptr<Collective> collective_;  // Declared last: it is freed before its members.
};

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_BACKEND_GROUP_H_
