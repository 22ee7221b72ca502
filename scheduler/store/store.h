// Store: the durable state of a scheduler, as a map from key to bytes.
//
// A Write is one transaction: all of it or nothing survives. After it has returned OK it survives
// the loss of the process and of the machine's power. After a failed Write it is unknown which rows
// are durable, so the scheduler ends: only a new one, which loads the store, may go on.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SCHEDULER_STORE_STORE_H_
#define CAPSTAN_SCHEDULER_STORE_STORE_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "scheduler/core/store_write.h"

namespace capstan::scheduler {

using StoreRows = std::map<std::string, std::string>;

class Store {
 public:
  virtual ~Store() = default;

  // Returns all durable rows.
  // Errors: kDataLoss     a row or the whole store is damaged; names it.
  //         kUnavailable  it cannot be read; names it.
  virtual absl::StatusOr<StoreRows> Load() = 0;

  // Makes all of `writes` durable, in order. A removed key need not exist.
  // Errors: kResourceExhausted  no space.   kUnavailable, kDataLoss  as Load.
  virtual absl::Status Write(absl::Span<const StoreWrite> writes) = 0;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_STORE_STORE_H_
