#include "server/engine/codec.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/wire/number_format.h"

namespace capstan::server {
namespace {

v1::ShardPushResult::Outcome OutcomeOf(PushOutcome outcome) {
  switch (outcome) {
    case PushOutcome::kRecorded:
      return v1::ShardPushResult::RECORDED;
    case PushOutcome::kDuplicate:
      return v1::ShardPushResult::DUPLICATE;
    case PushOutcome::kLate:
      return v1::ShardPushResult::LATE;
  }
  return v1::ShardPushResult::OUTCOME_UNSPECIFIED;
}

std::optional<FollowerKey> ServerAt(const v1::RoutingTable& routing, int server) {
  if (server < 0 || server >= routing.servers_size()) return std::nullopt;
  return KeyOfServer(routing.servers(server));
}

}  // namespace

absl::Status CheckCaller(const v1::Caller& caller) {
  if (caller.rank() == kReaderRank.value()) return absl::OkStatus();
  CAPSTAN_RETURN_IF_ERROR(CheckRank(caller.rank()));
  if (caller.incarnation() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("incarnation 0 of rank ", caller.rank(), ": expected 1 or more"));
  }
  return absl::OkStatus();
}

PushHead DecodePush(const v1::PushRequest& request, const v1::ShardPush& shard) {
  return PushHead{.token = {},
                  .rank = Rank(request.caller().rank()),
                  .incarnation = Incarnation(request.caller().incarnation()),
                  .iteration = Iteration(request.iteration()),
                  .slot_begin = request.slot_begin(),
                  .slot_end = request.slot_end(),
                  .sequence = Sequence(shard.sequence()),
                  .sequence_low_water = Sequence(shard.sequence_low_water())};
}

absl::StatusOr<PullHead> DecodePull(const v1::PullRequest& request, const v1::ShardPull& shard) {
  if (shard.held_version() < -1) {
    return absl::InvalidArgumentError(
        absl::StrCat("held_version ", shard.held_version(), ": expected -1 or more"));
  }
  if (shard.value_type() != v1::VALUE_TYPE_UNSPECIFIED) {
    CAPSTAN_RETURN_IF_ERROR(FormatOf(shard.value_type()).status());
  }
  return PullHead{.token = {},
                  .rank = Rank(request.caller().rank()),
                  .incarnation = Incarnation(request.caller().incarnation()),
                  .iteration = Iteration(request.iteration()),
                  .snapshot = request.snapshot(),
                  .held_version = Version(shard.held_version()),
                  .deadline = {}};
}

void EncodePushReply(const ReplyPush& reply, v1::ShardPushResult* result) {
  result->set_outcome(OutcomeOf(reply.outcome));
  result->set_version(reply.version.value());
}

void EncodePullReply(const ReplyPull& reply, v1::ShardValues* result) {
  result->set_version(reply.version.value());
  result->set_staleness(reply.staleness);
  result->set_membership(reply.membership.value());
  switch (reply.outcome) {
    case PullOutcome::kValues:
      return result->set_outcome(v1::ShardValues::VALUES);
    case PullOutcome::kUnchanged:
      return result->set_outcome(v1::ShardValues::UNCHANGED);
    case PullOutcome::kNotReady:
      return result->set_outcome(v1::ShardValues::NOT_READY);
    case PullOutcome::kPast:
      return result->set_outcome(v1::ShardValues::PAST);
  }
}

void EncodeWaitingOn(const ShardKey& key, const WaitingOn& waiting_on, v1::WaitingOn* waiting) {
  waiting->set_table(key.table.value());
  waiting->set_shard(key.shard.value());
  waiting->set_iteration(waiting_on.iteration.value());
  for (const Rank rank : waiting_on.ranks) waiting->add_ranks(rank.value());
  for (const SlotId slot : waiting_on.slots) waiting->add_slots(slot.value());
}

FollowerKey KeyOfServer(const v1::ServerAddress& server) {
  return {.node = server.node_id(), .incarnation = Incarnation(server.incarnation())};
}

RoutingTable DecodeRouting(const v1::RoutingTable& routing) {
  RoutingTable table{.generation = Generation(routing.generation()), .shards = {}};
  for (const v1::ShardRoute& each : routing.shards()) {
    ShardRoute route{.shard = {.key = {TableId(each.table()), ShardId(each.shard())},
                               .elements = {each.element_begin(), each.element_end()}},
                     // The first term is 1. A routing table that names no term is of the first.
                     .term = Term(std::max<uint64_t>(1, each.term())),
                     .primary = ServerAt(routing, each.server()),
                     .replicas = {},
                     .hands_over = each.hands_over(),
                     .awaits_log = each.awaits_log()};
    for (const v1::ShardReplica& replica : each.replicas()) {
      std::optional<FollowerKey> server = ServerAt(routing, replica.server());
      if (!server.has_value()) continue;
      route.replicas.push_back({.key = *std::move(server), .in_sync = replica.in_sync()});
    }
    table.shards.push_back(std::move(route));
  }
  return table;
}

}  // namespace capstan::server
