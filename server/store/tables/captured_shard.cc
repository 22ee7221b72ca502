#include "server/store/tables/captured_shard.h"

#include <utility>

#include "common/status/status_macros.h"

namespace capstan::server {

absl::StatusOr<std::shared_ptr<const v1::ShardSnapshot>> ReadWhole(
    std::shared_ptr<const v1::ShardSnapshot> snapshot, CapturedRows* rows) {
  if (rows == nullptr) return snapshot;
  auto whole = std::make_shared<v1::ShardSnapshot>(*snapshot);
  while (true) {
    CAPSTAN_ASSIGN_OR_RETURN(std::optional<v1::ShardSnapshot> piece, rows->Next());
    if (!piece.has_value()) return whole;
    *whole->add_pieces() = *std::move(piece);
  }
}

}  // namespace capstan::server
