// BackendGroup: what one network is computed with: a backend, or several devices of one host that
// compute parts of each batch.
//
// Thread safety: as the backends': used by one thread at a time.
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

  // One device or more, with a collective, of which devices[i] is member i.
  // Errors: kInvalidArgument  no device, or tensors of different types; else those of
  //                           DeviceBackend::Join.
  static absl::StatusOr<BackendGroup> Join(std::vector<std::unique_ptr<DeviceBackend>> devices);

  BackendGroup(BackendGroup&&) = default;
  BackendGroup& operator=(BackendGroup&&) = delete;  // The collective would outlive its members.

  size_t size() const { return backends_.size(); }  // >= 1.
  Backend& operator[](size_t member) const { return *backends_[member]; }
  Collective* collective() const { return collective_.get(); }  // Null: a lone backend.
  // Those that do not answer any more, ascending. Asks every device; the host always answers.
  std::vector<size_t> Silent() const;

 private:
  std::vector<std::unique_ptr<Backend>> backends_;
  std::unique_ptr<Collective> collective_;  // Declared last: dies before its members.
};

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_BACKEND_GROUP_H_
