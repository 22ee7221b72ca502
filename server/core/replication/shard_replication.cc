#include "server/core/replication/shard_replication.h"

#include <algorithm>

#include "common/planted/planted_bug.h"

namespace capstan::server {

void ShardReplication::SetRole(const RoleRoute& route, Position position, Version version) {
  generation_ = route.generation;
  const bool new_term =
      route.role == ShardRole::kPrimary && (role_ != ShardRole::kPrimary || term_ != route.term);
  if (route.term != term_ || !route.primary.empty()) primary_node_ = route.primary;
  role_ = route.role;
  term_ = route.term;
  if (role_ == ShardRole::kNone || new_term) {
    held_term_ = role_ == ShardRole::kNone ? Term(0) : term_;
    logged_position_ = Position(-1);
  }
  if (role_ == ShardRole::kPrimary) {
    primary_.SetRoute(route, position, version);
  } else {
    primary_.Stop();
  }
}

void ShardReplication::OnLogged(Term term, Position position) {
  if (term != held_term_) return;
  logged_position_ = std::max(logged_position_, position);
  if (role_ == ShardRole::kPrimary) primary_.OnLogged(position);
}

ReplicaVerdict ShardReplication::Consider(const ReplicateHead& head, Position position) const {
  using Kind = ReplicaVerdict::Kind;
  if (Planted(PlantedBug::kAcceptOldTerm) && head.term < term_ && role_ != ShardRole::kNone) {
    return {.kind = head.install.has_value() ? Kind::kInstall : Kind::kNothing};
  }
  if (head.term < term_) return {.kind = Kind::kFenced};
  if (head.generation > generation_ || role_ != ShardRole::kReplica || head.term != term_) {
    return {.kind = Kind::kNotYet};
  }
  const bool same_term = held_term_ == head.term;
  if (head.install.has_value()) {
    const bool is_held = same_term && position >= *head.install;
    return {.kind = is_held ? Kind::kNothing : Kind::kInstall};
  }
  if (!same_term || head.records == 0) return {.kind = Kind::kNothing};
  const int64_t skip = position.value() + 1 - head.begin.value();
  if (skip < 0 || skip >= head.records) return {.kind = Kind::kNothing};
  return {.kind = Kind::kReplay, .skip = skip};
}

void ShardReplication::TookInstall(Term term) {
  held_term_ = term;
  logged_position_ = Position(-1);
}

}  // namespace capstan::server
