// HeldFolder: a folder that a process holds open, so that path() means this folder even after it
// was renamed or removed. Files made in it after its removal are refused, not put into a new folder
// of the same name.
//
// A task that was taken for dead, and wakes up after its job has ended, must not make its folder
// anew: no process would remove it.
// Thread safety: immutable.
#ifndef CAPSTAN_COMMON_TENSOR_HELD_FOLDER_H_
#define CAPSTAN_COMMON_TENSOR_HELD_FOLDER_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/storage/files/descriptor.h"

namespace capstan {

class HeldFolder {
 public:
  // Makes the folder, and those above it; it may exist.
  // Errors: that of the operating system, with the path.
  static absl::StatusOr<HeldFolder> Make(const std::string& path);

  HeldFolder(HeldFolder&&) = default;
  ~HeldFolder();

  // The folder, by its descriptor, for this process alone and while this lives. What is made below
  // it fails with kNotFound once the folder is removed.
  std::string path() const;

 private:
  explicit HeldFolder(Descriptor fd);
  Descriptor fd_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_TENSOR_HELD_FOLDER_H_
