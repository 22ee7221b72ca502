// HeldShard: a shard that this server holds or is to hold: elements of its table.
//
// Thread safety: plain data and a pure function.
#ifndef CAPSTAN_SERVER_CORE_HELD_SHARD_H_
#define CAPSTAN_SERVER_CORE_HELD_SHARD_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "common/types/ids.h"

namespace capstan::server {

struct HeldShard {
  ShardKey key;
  Range elements;
  friend bool operator==(const HeldShard&, const HeldShard&) = default;
};

// "table 0 shard 3".
inline std::string NameOf(const ShardKey& key) {
  return absl::StrCat("table ", key.table.value(), " shard ", key.shard.value());
}

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_CORE_HELD_SHARD_H_
