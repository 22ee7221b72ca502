#include "server/store/sparse/removed_keys.h"

#include <algorithm>
#include <cassert>

#include "common/sparse/key_hash.h"

namespace capstan::server {

void RemovedKeys::KeepSince(int64_t version, int64_t present) {
  if (!KnownSince(version)) {
    since_ = present;
    left_.clear();
    return;
  }
  since_ = version;
  const auto before = [version](const Left& left) { return left.version <= version; };
  left_.erase(left_.begin(), std::partition_point(left_.begin(), left_.end(), before));
}

void RemovedKeys::Add(absl::Span<const uint64_t> keys, int64_t version, int64_t keys_max) {
  if (!keeping()) return;
  if (static_cast<int64_t>(left_.size() + keys.size()) > keys_max) return Forget();
  for (const uint64_t key : keys) left_.push_back({.version = version, .key = key});
}

void RemovedKeys::Forget() {
  since_.reset();
  left_ = {};
}

std::vector<uint64_t> RemovedKeys::Since(int64_t version) const {
  assert(KnownSince(version));
  std::vector<uint64_t> hashes;
  for (const Left& left : left_) {
    if (left.version > version) hashes.push_back(KeyHash(left.key));
  }
  std::sort(hashes.begin(), hashes.end());
  hashes.erase(std::unique(hashes.begin(), hashes.end()), hashes.end());
  for (uint64_t& hash : hashes) hash = KeyOfHash(hash);
  return hashes;
}

}  // namespace capstan::server
