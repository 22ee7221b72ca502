// SnapshotLeases: which snapshots of a job are kept on a server, and for which readers.
//
//   Open, for those who asked --> KEPT --a reader reads again: its lease begins anew
//     KEPT --all readers have closed it, or not read for `lease`--> ended (TakeEnded)
//
// A snapshot belongs to its readers, who are named when it is opened. A scheduler that continues
// from an older copy of its store issues ids again, so an id alone does not identify a moment.
// Pure: no clock. Thread safety: thread-compatible. Invariant: what is kept has a reader.
#ifndef CAPSTAN_SERVER_CORE_SNAPSHOT_LEASES_H_
#define CAPSTAN_SERVER_CORE_SNAPSHOT_LEASES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/time/instant.h"
#include "common/types/ids.h"

namespace capstan::server {

// A reader's name for itself: a random number.
enum class ReaderId : uint64_t {};

class SnapshotLeases {
 public:
  struct Limits {
    size_t snapshots = 8;
    size_t readers = 1024;  // Readers of one snapshot.
    absl::Duration lease = absl::Seconds(30);
  };
  explicit SnapshotLeases(const Limits& limits) : limits_(limits) {}

  // Errors (nothing changes): kResourceExhausted  too many snapshots, or too many readers.
  //         kInvalidArgument  no reader. kAlreadyExists  a snapshot of this id is kept.
  absl::Status Open(CheckpointId snapshot, absl::Span<const ReaderId> readers, Instant now);
  // Errors: kNotFound  it is not kept for this reader, or no longer.
  absl::Status Renew(CheckpointId snapshot, ReaderId reader, Instant now);
  void Close(CheckpointId snapshot, ReaderId reader);  // An unknown snapshot or reader is ignored.
  // Returns the snapshots that nobody reads any more, each once.
  std::vector<CheckpointId> TakeEnded(Instant now);
  Instant NextDeadline() const;

  absl::Duration lease() const { return limits_.lease; }
  bool Has(CheckpointId snapshot) const { return snapshots_.contains(snapshot); }

 private:
  using Readers = std::map<ReaderId, Instant>;  // When each one's lease ends.

  const Limits limits_;
  std::map<CheckpointId, Readers> snapshots_;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_CORE_SNAPSHOT_LEASES_H_
