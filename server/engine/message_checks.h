// Checks a message's list of shards as far as possible without the shards.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_SERVER_ENGINE_MESSAGE_CHECKS_H_
#define CAPSTAN_SERVER_ENGINE_MESSAGE_CHECKS_H_

#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/types/ids.h"
#include "server/core/replication/held_shard.h"

namespace capstan::server {

template <typename ShardMessage>
ShardKey KeyOf(const ShardMessage& shard) {
  return {TableId(shard.table()), ShardId(shard.shard())};
}

// Checks that the list is not empty, is not longer than `shards_max`, and has no shard twice.
// Errors: kInvalidArgument.
template <typename ShardMessages>
absl::Status CheckShardList(const ShardMessages& shards, int shards_max) {
  if (shards.empty()) return absl::InvalidArgumentError("no shards: expected at least 1");
  if (shards.size() > shards_max) {
    return absl::InvalidArgumentError(
        absl::StrCat(shards.size(), " shards in one message: expected at most ", shards_max));
  }
  std::set<ShardKey> seen;
  for (const auto& shard : shards) {
    if (!seen.insert(KeyOf(shard)).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(NameOf(KeyOf(shard)), " is twice in one message: expected once"));
    }
  }
  return absl::OkStatus();
}

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_ENGINE_MESSAGE_CHECKS_H_
