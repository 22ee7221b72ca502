// StoreRevision: a point in the history of a scheduler's store (proto/nodes.proto). Thread safety:
// a value.
#ifndef CAPSTAN_COMMON_TYPES_STORE_REVISION_H_
#define CAPSTAN_COMMON_TYPES_STORE_REVISION_H_

#include <cstdint>

namespace capstan {

struct StoreRevision {
  uint64_t scheduler = 0;  // Random number of one scheduler process. 0: none is known.
  uint64_t count = 0;      // Transactions that this process had written to its store.

  friend bool operator==(const StoreRevision&, const StoreRevision&) = default;
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(scheduler, count);
  }
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_TYPES_STORE_REVISION_H_
