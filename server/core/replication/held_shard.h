// HeldShard: a shard that this server holds or is to hold, and its elements of the table.
//
// Thread safety: plain data.
#ifndef CAPSTAN_SERVER_CORE_REPLICATION_HELD_SHARD_H_
#define CAPSTAN_SERVER_CORE_REPLICATION_HELD_SHARD_H_

#include "common/types/ids.h"

namespace capstan::server {

struct HeldShard {
  ShardKey key;
  Range elements;
  friend bool operator==(const HeldShard&, const HeldShard&) = default;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_CORE_REPLICATION_HELD_SHARD_H_
