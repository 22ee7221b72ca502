// NodeIdentity: how a daemon proves that it is the successor of an earlier process of its name.
//
//   <folder>/.identity/<name>/lock   held by the process that has the identity
//                             id     the identity, made once
//
// A name belongs to the process whose lease is valid. A process that was killed and is started
// again has its name back at once all the same, because the identity lies in the daemon's folder
// and belongs to one process at a time: the process that holds the lock knows that the earlier one
// is gone. A daemon without a folder, or whose lock another process holds, has an identity of its
// own, which proves only that it is the same process (if the answer to its first registration was
// lost).
// Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_NET_NODE_NODE_IDENTITY_H_
#define CAPSTAN_COMMON_NET_NODE_NODE_IDENTITY_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/storage/files/folder_lock.h"

namespace capstan {

class NodeIdentity {
 public:
  NodeIdentity();  // Makes one that belongs to this process alone.

  // Takes the identity of the daemon `name` in `folder`, and makes it if it is missing.
  // Errors: kFailedPrecondition  another process has it.
  //         kInvalidArgument     the name is empty or no name of a file.
  //         else                 the disk's; each names the file or folder.
  static absl::StatusOr<NodeIdentity> Keep(const std::string& folder, const std::string& name);

  const std::string& id() const { return id_; }

 private:
  NodeIdentity(std::string id, FolderLock lock);

  std::string id_;  // Never empty.
  std::optional<FolderLock> lock_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_NODE_NODE_IDENTITY_H_
