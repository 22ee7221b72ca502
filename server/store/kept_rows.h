// How rows that somebody still reads are pinned, and whom the memory that they take is charged to.
// RowHistory (server/store/sparse) keeps them.
#ifndef CAPSTAN_SERVER_STORE_KEPT_ROWS_H_
#define CAPSTAN_SERVER_STORE_KEPT_ROWS_H_

#include <cstdint>

#include "absl/status/status.h"

namespace capstan::server {

// A version of a bucket that is pinned. Never used twice in a job.
enum class PinId : uint64_t {};

// Accounts for the memory of kept rows; the histories of a job share it.
class KeptRowsAccount {
 public:
  virtual ~KeptRowsAccount() = default;
  // A history takes `to` bytes of memory, which was `from`. Errors: there is no room for more; then
  // nothing changes. Less always fits.
  virtual absl::Status Resize(int64_t from, int64_t to) = 0;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORE_KEPT_ROWS_H_
