#include "server/engine/job/call_checks.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/sparse/key_list_name.h"
#include "common/sparse/wanted_keys.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/types/message_limits.h"
#include "server/engine/codec.h"
#include "server/engine/message_checks.h"
#include "server/store/state_codec.h"

namespace capstan::server {
namespace {

KeyListName NameOf(const v1::KeyListName& name) {
  return {.low = name.low(), .high = name.high(), .count = name.count()};
}

// Returns those of a pull's keys whose rows it asks for.
absl::StatusOr<RowKeys> WantedOf(const ShardKey& shard, const RowKeys& keys,
                                 absl::string_view bits) {
  if (keys == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(NameOf(shard), ": wanted: expected nothing, the shard is dense"));
  }
  absl::StatusOr<std::vector<uint64_t>> wanted = KeysOfBits(*keys, bits);
  if (!wanted.ok()) return Annotate(wanted.status(), NameOf(shard));
  return std::make_shared<const std::vector<uint64_t>>(*std::move(wanted));
}

}  // namespace

absl::Status CallChecks::CheckCallerLocked(const v1::Caller& caller) const {
  CAPSTAN_RETURN_IF_ERROR(state_->closed);
  CAPSTAN_RETURN_IF_ERROR(state_->failure);
  CAPSTAN_RETURN_IF_ERROR(CheckCaller(caller));
  const uint64_t held = state_->routing.generation().value();
  if (caller.routing_generation() < held) {
    return absl::FailedPreconditionError(
        absl::StrCat("routing generation ", caller.routing_generation(), ": expected ", held,
                     "; fetch the routing table and send again"));
  }
  if (caller.routing_generation() > held) {
    return absl::UnavailableError(absl::StrCat("routing generation ", caller.routing_generation(),
                                               ": this server has ", held,
                                               " and will take the newer one in soon; try again"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<std::vector<Gradient>>> CallChecks::CheckPushLocked(
    const PushMessage& push) {
  const v1::PushRequest& request = push.head;
  CAPSTAN_RETURN_IF_ERROR(CheckCallerLocked(request.caller()));
  if (request.caller().rank() == kReaderRank.value()) {
    return absl::InvalidArgumentError("rank -1: a reader that is no worker may not push");
  }
  CAPSTAN_RETURN_IF_ERROR(CheckShardList(request.shards(), kShardsPerMessageMax));
  std::vector<Gradient> gradients;
  gradients.reserve(push.values.size());
  for (int i = 0; i < request.shards_size(); ++i) {
    const v1::ShardPush& shard = request.shards(i);
    const ShardKey key = KeyOf(shard);
    if (state_->tables.Find(key) == nullptr) return state_->NotHeldLocked(key);
    const absl::StatusOr<NumberFormat> format = FormatOf(shard.value_type());
    if (!format.ok()) return Annotate(format.status(), NameOf(key));
    RowKeys listed;
    if (shard.has_key_list()) {
      listed = state_->key_lists.Find(Rank(request.caller().rank()),
                                      Incarnation(request.caller().incarnation()), key,
                                      NameOf(shard.key_list()));
      if (listed == nullptr) return std::nullopt;
    }
    CAPSTAN_ASSIGN_OR_RETURN(
        Gradient gradient,
        state_->tables.ParseGradient(key, push.values[static_cast<size_t>(i)], *format, listed));
    gradients.push_back(std::move(gradient));
  }
  CAPSTAN_RETURN_IF_ERROR(state_->ForEachPrimaryLocked(
      request.shards(),
      [&](int i) {
        const v1::ShardPush& shard = request.shards(i);
        return state_->tables.CheckPush(KeyOf(shard), DecodePush(request, shard),
                                        gradients[static_cast<size_t>(i)]);
      },
      kNothingBegun));
  return gradients;
}

absl::StatusOr<std::optional<std::vector<RowKeys>>> CallChecks::CheckPullLocked(
    const v1::PullRequest& request) {
  CAPSTAN_RETURN_IF_ERROR(CheckPullHeadLocked(request));
  std::vector<RowKeys> keys;
  for (const v1::ShardPull& shard : request.shards()) {
    CAPSTAN_ASSIGN_OR_RETURN(std::optional<RowKeys> of_shard,
                             KeysOfLocked(request.caller(), shard));
    if (!of_shard.has_value()) return std::nullopt;
    keys.push_back(*std::move(of_shard));
  }
  CAPSTAN_RETURN_IF_ERROR(CheckPullSizeLocked(request, keys));
  return keys;
}

absl::Status CallChecks::CheckPullHeadLocked(const v1::PullRequest& request) const {
  CAPSTAN_RETURN_IF_ERROR(CheckCallerLocked(request.caller()));
  CAPSTAN_RETURN_IF_ERROR(CheckShardList(request.shards(), kShardsPerMessageMax));
  if (request.wait_limit_ms() < 0 || request.wait_limit_ms() > kWaitLimitMsMax) {
    return absl::InvalidArgumentError(absl::StrCat("wait_limit_ms ", request.wait_limit_ms(),
                                                   ": expected 0 to ", kWaitLimitMsMax));
  }
  return state_->ForEachPrimaryLocked(
      request.shards(),
      [&](int i) -> absl::Status {
        const v1::ShardPull& shard = request.shards(i);
        const absl::StatusOr<PullHead> head = DecodePull(request, shard);
        if (!head.ok()) return Annotate(head.status(), NameOf(KeyOf(shard)));
        return state_->tables.CheckPull(KeyOf(shard), *head);
      },
      kNothingBegun);
}

absl::Status CallChecks::CheckPullSizeLocked(const v1::PullRequest& request,
                                             const std::vector<RowKeys>& keys) const {
  int64_t answer_bytes = 0;
  int64_t key_bytes = state_->calls.key_bytes();
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] != nullptr) key_bytes += static_cast<int64_t>(keys[i]->size() * sizeof(uint64_t));
    const ShardStore& store =
        state_->tables.Find(KeyOf(request.shards(static_cast<int>(i))))->store();
    answer_bytes += store.AnswerElements(keys[i]) * static_cast<int64_t>(sizeof(float));
  }
  if (answer_bytes > kShardBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("asks for ", answer_bytes, " bytes of values in one answer: expected at most ",
                     kShardBytesMax));
  }
  if (key_bytes > kWaitingKeyBytesMax) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "pulls that wait hold ", state_->calls.key_bytes(), " bytes of keys, with this one ",
        key_bytes, ": expected at most ", kWaitingKeyBytesMax));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<RowKeys>> CallChecks::KeysOfLocked(const v1::Caller& caller,
                                                                const v1::ShardPull& shard) {
  const ShardKey key = KeyOf(shard);
  const Rank rank(caller.rank());
  const Incarnation incarnation(caller.incarnation());
  const KeyListName name = NameOf(shard.key_list());
  RowKeys keys;
  if (shard.has_key_list() && shard.keys().empty()) {
    keys = state_->key_lists.Find(rank, incarnation, key, name);
    if (keys == nullptr) return std::nullopt;
  } else {
    absl::StatusOr<RowKeys> parsed = state_->tables.Find(key)->store().ParseKeys(shard.keys());
    if (!parsed.ok()) return Annotate(parsed.status(), NameOf(key));
    keys = *std::move(parsed);
    if (shard.has_key_list() && name.count != std::ssize(*keys)) {
      return absl::InvalidArgumentError(
          absl::StrCat(NameOf(key), ": a list of ", name.count, " keys comes with ", keys->size()));
    }
    if (shard.has_key_list() && rank != kReaderRank) {
      state_->key_lists.Keep(rank, incarnation, key, name, keys);
    }
  }
  if (shard.wanted().empty()) return keys;
  return WantedOf(key, keys, shard.wanted());
}

absl::Status CallChecks::CheckSinceLocked(const v1::ScanSince& since, Version present) const {
  if (since.timeline() != state_->routing.timeline()) {
    return absl::OutOfRangeError(
        absl::StrCat("version ", since.version(), " is of timeline ", since.timeline(),
                     ", the present one is ", state_->routing.timeline(),
                     ": the job has gone back to a checkpoint since; ask for all rows"));
  }
  if (since.version() >= 0 && since.version() <= present.value()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("rows since version ", since.version(),
                                                 ": expected 0 to ", present.value(),
                                                 ", the present one"));
}

}  // namespace capstan::server
