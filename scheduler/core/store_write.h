// StoreWrite: one row that is to be made durable. scheduler/store/state_codec.h makes such rows
// from the Changes of a step of the core.
//
// The store is a map from key to bytes. The writes of one step are one transaction, and it is
// durable BEFORE any answer of the same step leaves. Thread safety: values.
#ifndef CAPSTAN_SCHEDULER_CORE_STORE_WRITE_H_
#define CAPSTAN_SCHEDULER_CORE_STORE_WRITE_H_

#include <optional>
#include <string>

namespace capstan::scheduler {

struct StoreWrite {
  std::string key;                   // "job/<id>", "nodes", ...
  std::optional<std::string> value;  // Nothing: the key is removed.
  friend bool operator==(const StoreWrite&, const StoreWrite&) = default;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_STORE_WRITE_H_
