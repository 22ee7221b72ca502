// RemovedKeys: the keys whose rows have left a bucket since a version, for captures of what
// changed.
//
//   (nothing known) --KeepSince--> KNOWN since that version --too many--> (nothing known)
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SERVER_STORE_SPARSE_REMOVED_KEYS_H_
#define CAPSTAN_SERVER_STORE_SPARSE_REMOVED_KEYS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace capstan::server {

class RemovedKeys {
 public:
  // Keeps the keys that leave after `version` from now on. If they are not known since `version`,
  // they are kept from `present` on, the bucket's version.
  void KeepSince(int64_t version, int64_t present);
  // Notes that `keys` leave with the update that makes `version`. If that makes more than
  // `keys_max`, all are forgotten.
  void Add(absl::Span<const uint64_t> keys, int64_t version, int64_t keys_max);
  void Forget();

  bool keeping() const { return since_.has_value(); }
  bool KnownSince(int64_t version) const { return since_.has_value() && *since_ <= version; }
  // Keys that left after `version`, each once, ascending by hash. REQUIRES: KnownSince(version).
  std::vector<uint64_t> Since(int64_t version) const;
  int64_t bytes() const { return static_cast<int64_t>(left_.capacity() * sizeof(Left)); }

 private:
  struct Left {
    int64_t version = 0;
    uint64_t key = 0;
  };

  std::optional<int64_t> since_;
  std::vector<Left> left_;  // Ordered by version.
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORE_SPARSE_REMOVED_KEYS_H_
