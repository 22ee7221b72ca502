// RowDisk: where the bodies of a bucket's rows lie that have no room in memory (body_cache.h).
//
// It lengthens memory, and is as short-lived: nothing of it outlives the process. Logs, replicas
// and checkpoints know nothing of it.
// Thread safety: a RowDisk is thread-compatible; RowDisks are thread-safe.
#ifndef CAPSTAN_SERVER_SPARSE_TABLE_ROW_DISK_H_
#define CAPSTAN_SERVER_SPARSE_TABLE_ROW_DISK_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/sparse_table/row_slab.h"

namespace capstan::server {

class RowDisk {
 public:
  virtual ~RowDisk() = default;  // Its bodies are gone.

  // A body for each of `rows`, which ascend; in the place of one that is there.
  // Errors: kResourceExhausted  no space; kUnavailable  another error of the disk. Some are
  //         written, some are not.
  virtual absl::Status Write(absl::Span<const RowNumber> rows,
                             absl::Span<const char* const> bodies) = 0;
  // REQUIRES: `rows` ascend; each was written.
  // Errors: kDataLoss  one is not what was written, or cannot be read; names the row.
  virtual absl::Status Read(absl::Span<const RowNumber> rows, absl::Span<char* const> bodies) = 0;
};

// Makes one for each bucket. Outlives them.
class RowDisks {
 public:
  virtual ~RowDisks() = default;
  virtual std::unique_ptr<RowDisk> Open(int64_t body_bytes) = 0;  // Empty.
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_SPARSE_TABLE_ROW_DISK_H_
