// SharedSegment: memory that two processes of one host and one user share.
//
//   caller: Create --> offer() --RPC--> other: Open(offer) --> proof() --RPC--> caller: compares
//
// It is a memfd: no name, no file, gone with its last mapping. It is sealed against shrinking, and
// allocated as a whole before it is used, so that no access can fail. The other process opens it
// through /proc/PROCESS/fd, which the kernel allows to the same user, and checks its owner, because
// a privileged process may open more. The memory begins with two secrets. `challenge`, which the
// offer holds, shows the other process that the memory is the caller's. `proof`, which never
// travels before, shows the caller that the other process reads the same memory. Two hosts, or two
// PID namespaces, whose numbers agree by chance do not pass.
//
// The other process may change the memory at any time: read nothing twice that must not change.
// Thread safety: thread-safe; the users of the memory synchronize their accesses to it.
#ifndef CAPSTAN_COMMON_SHARED_MEMORY_SHARED_SEGMENT_H_
#define CAPSTAN_COMMON_SHARED_MEMORY_SHARED_SEGMENT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace capstan {

// Names a segment of another process.
struct SegmentOffer {
  int64_t process = 0;
  int descriptor = -1;
  int64_t bytes = 0;
  std::string challenge;  // SharedSegment::kSecretBytes long.
};

class SharedSegment {
 public:
  static constexpr size_t kSecretBytes = 16;
  static constexpr int64_t kBytesMax = int64_t{1} << 30;

  // New memory, zeros, none of it allocated yet. REQUIRES: 0 < bytes <= kBytesMax.
  // Errors: kResourceExhausted  no memory. kUnavailable  the kernel refuses; says why.
  static absl::StatusOr<std::shared_ptr<SharedSegment>> Create(int64_t bytes);

  // The memory that another process offers.
  // Errors: kInvalidArgument   fields that cannot be, or memory that is not sealed, or of another
  //                            length than said.
  //         kPermissionDenied  it is another user's (seen by a privileged process), or others may
  //                            open it too.
  //         kNotFound          there is no such process or descriptor here, it may not be looked
  //                            at, or is something else: the caller is on another host, or another
  //                            user's.
  //         kResourceExhausted no descriptor or memory is left.
  static absl::StatusOr<std::shared_ptr<SharedSegment>> Open(const SegmentOffer& offer);

  ~SharedSegment();
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;

  // Takes all its pages from the system. Errors: those of Create.
  absl::Status Allocate();

  // The offer by which another process opens this segment; valid as long as the segment lives.
  // REQUIRES: the segment was made by Create.
  SegmentOffer offer() const;
  std::string proof() const;

  char* data() { return memory_ + kHeadBytes; }
  const char* data() const { return memory_ + kHeadBytes; }
  int64_t size() const { return bytes_; }

 private:
  static constexpr int64_t kHeadBytes = 4096;  // Challenge and proof, on a page of their own.

  SharedSegment(int descriptor, char* memory, int64_t bytes)
      : descriptor_(descriptor), memory_(memory), bytes_(bytes) {}
  static absl::StatusOr<std::shared_ptr<SharedSegment>> Map(int descriptor, int64_t bytes);
  absl::string_view challenge() const { return {memory_, kSecretBytes}; }

  void CloseDescriptor();

  int descriptor_;  // Owned; -1 once it is mapped and nobody is to open it any more.
  char* const memory_;
  const int64_t bytes_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_SHARED_MEMORY_SHARED_SEGMENT_H_
