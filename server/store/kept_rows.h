// The pins of rows that somebody still reads, and the account that the memory of these rows is
// charged to. RowHistory (server/store/sparse) keeps the rows.
#ifndef CAPSTAN_SERVER_STORE_KEPT_ROWS_H_
#define CAPSTAN_SERVER_STORE_KEPT_ROWS_H_

#include <cstdint>

#include "absl/status/status.h"

namespace capstan::server {

// A version of a bucket that is pinned. Never used twice in a job.
enum class PinId : uint64_t {};

// Accounts for the memory of kept rows. The histories of a job share it. Thread safety:
// thread-safe.
class KeptRowsAccount {
 public:
  virtual ~KeptRowsAccount() = default;
  // Changes the memory of one history from `from` to `to` bytes. Errors: there is no room for more;
  // then nothing changes. Less always fits.
  virtual absl::Status Resize(int64_t from, int64_t to) = 0;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORE_KEPT_ROWS_H_
