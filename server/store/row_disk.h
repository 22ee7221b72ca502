// RowDisk: stores the payloads of a bucket's rows that have no room in memory (payload_cache.h).
//
// It extends memory and lasts no longer: nothing of it outlives the process. Logs, replicas and
// checkpoints know nothing of it.
// Thread safety: a RowDisk is thread-compatible; RowDisks are thread-safe.
#ifndef CAPSTAN_SERVER_STORE_ROW_DISK_H_
#define CAPSTAN_SERVER_STORE_ROW_DISK_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/store/sparse/rows/row_slab.h"

namespace capstan::server {

// Payloads that are read ahead of time, while other threads use their RowDisk, or after it has been
// destroyed.
class RowFetch {
 public:
  virtual ~RowFetch() = default;
  // Each is called once, in this order, by any thread. A payload that cannot be read does not
  // arrive.
  virtual void Start() = 0;           // Requests all payloads, and waits for none.
  virtual void Finish() = 0;          // Waits for them.
  virtual int64_t bytes() const = 0;  // Bytes of the payloads.
};

struct FetchedPayload {
  RowNumber row = 0;
  const char* payload = nullptr;  // Valid as long as the fetch.
};

class RowDisk {
 public:
  virtual ~RowDisk() = default;  // Deletes its payloads.

  // Writes a payload for each of `rows`, which differ. It replaces the one that is there.
  // Errors: kResourceExhausted  no space; kUnavailable  another error of the disk. Some are
  //         written, some are not.
  virtual absl::Status Write(absl::Span<const RowNumber> rows,
                             absl::Span<const char* const> payloads) = 0;
  // REQUIRES: each was written, and not forgotten since.
  // Errors: kDataLoss  one is not what was written; names the row. kUnavailable  another error of
  //         the disk.
  virtual absl::Status Read(absl::Span<const RowNumber> rows, absl::Span<char* const> payloads) = 0;
  // Prepares to read the payloads as they are now. REQUIRES: same as Read.
  virtual std::unique_ptr<RowFetch> BeginFetch(absl::Span<const RowNumber> rows) const = 0;
  // Returns the payloads that have arrived and are what Read would bring now. `fetch` was begun by
  // this RowDisk, or by one that was in its place before.
  virtual std::vector<FetchedPayload> Arrived(const RowFetch& fetch) const = 0;
  // The row's payload, if there is one, will not be read any more.
  virtual void Forget(RowNumber row) = 0;
  virtual int64_t bytes() const = 0;  // Memory of its tables of rows.
};

// RowDisks: makes the RowDisk of each bucket. Outlives them.
class RowDisks {
 public:
  virtual ~RowDisks() = default;
  // Makes an empty one. Errors: those of the disk.
  virtual absl::StatusOr<std::unique_ptr<RowDisk>> Open(int64_t payload_bytes) = 0;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORE_ROW_DISK_H_
