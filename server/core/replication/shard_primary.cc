#include "server/core/replication/shard_primary.h"

#include <algorithm>
#include <utility>

#include "common/planted/planted_bug.h"
#include "common/types/message_limits.h"

namespace capstan::server {

void ShardPrimary::SetRoute(const RoleRoute& route, Position position, Version version) {
  generation_ = route.generation;
  hands_over_ = route.hands_over;
  awaits_log_ = route.awaits_log;
  if (term_ != route.term) {
    StartTerm(route.term, position, version);
  } else if (!keeps_records()) {
    SkipTo(position, version);
  }
  SetFollowers(route.followers);
  Commit();
  Trim();
}

void ShardPrimary::Stop() {
  term_ = Term(0);
  hands_over_ = false;
  awaits_log_ = false;
  followers_.clear();
  kept_.clear();
  kept_bytes_ = 0;
  uncommitted_.clear();
}

void ShardPrimary::StartTerm(Term term, Position position, Version version) {
  term_ = term;
  logged_position_ = Position(-1);
  deposed_ = false;
  last_ = position;
  sent_ = position;
  kept_.clear();
  kept_bytes_ = 0;
  followers_.clear();
  committed_position_ = Position(-1);
  committed_version_ = Version(-1);
  uncommitted_ = {{position, version}};
}

// Skips records that no follower or log wanted: they were committed as they were made.
void ShardPrimary::SkipTo(Position position, Version version) {
  last_ = position;
  sent_ = position;
  kept_.clear();
  kept_bytes_ = 0;
  uncommitted_.clear();
  committed_position_ = position;
  committed_version_ = version;
}

void ShardPrimary::SetFollowers(const std::vector<FollowerRoute>& routes) {
  std::map<FollowerKey, Follower> followers;
  for (const FollowerRoute& route : routes) {
    Follower follower;
    const auto known = followers_.find(route.key);
    // A follower that was in sync and no longer is has been removed and added again in between: it
    // may have dropped everything.
    if (known != followers_.end() && (route.in_sync || !known->second.in_sync)) {
      follower = std::move(known->second);
    }
    follower.in_sync = route.in_sync;
    follower.counted = follower.counted || route.in_sync;
    follower.confirmed = false;
    followers.insert({route.key, std::move(follower)});
  }
  followers_ = std::move(followers);
}

void ShardPrimary::Append(Position position, Version version_after, int64_t bytes) {
  Keep(position, version_after, bytes, /*is_barrier=*/false);
}

void ShardPrimary::AppendBarrier(Position position, int64_t bytes) {
  const Version version = uncommitted_.empty() ? committed_version_ : uncommitted_.back().second;
  Keep(position, version, bytes, /*is_barrier=*/true);
}

void ShardPrimary::Keep(Position position, Version version_after, int64_t bytes, bool is_barrier) {
  last_ = position;
  last_is_barrier_ = is_barrier;
  kept_.push_back(bytes);
  kept_bytes_ += bytes;
  uncommitted_.emplace_back(position, version_after);
  Commit();
  Trim();
}

std::optional<Position> ShardPrimary::UnsentBarrier() const {
  if (!last_is_barrier_ || sent_ >= last_) return std::nullopt;
  return last_;
}

// A follower is asked whether it would accept a whole shard before it is sent one.
bool ShardPrimary::NeedsInstall(const Follower& follower) const {
  if (!follower.installed) return follower.confirmed;
  const Position next = follower.acked.Next();
  if (next < oldest_kept()) return true;
  // A larger record travels in no message: a whole shard brings it.
  return next <= last_ && kept_[IndexOf(next)] > kShardBytesMax;
}

bool ShardPrimary::WantsMessage(const Follower& follower) const {
  if (follower.in_flight.has_value()) return false;
  return !follower.installed || follower.acked < last_ ||
         (!follower.confirmed && !follower.in_sync);
}

std::optional<ReplicaMessage> ShardPrimary::NextMessage(Instant now,
                                                        const MayInstall& may_install) {
  if (deposed_) return std::nullopt;
  for (auto& [key, follower] : followers_) {
    if (!WantsMessage(follower) || now < follower.next_try) continue;
    if (NeedsInstall(follower) && !may_install(key)) continue;
    return MakeMessage(key, follower, now);
  }
  return std::nullopt;
}

ReplicaMessage ShardPrimary::MakeMessage(const FollowerKey& key, Follower& follower, Instant now) {
  ReplicaMessage message{
      .to = key, .id = next_message_, .begin = last_.Next(), .end = last_.Next()};
  ++next_message_;
  message.install = NeedsInstall(follower);
  if (!message.install && follower.installed) {
    message.begin = follower.acked.Next();
    message.end = message.begin;
    int64_t bytes = 0;
    for (size_t i = IndexOf(message.begin); i < kept_.size(); ++i) {
      bytes += kept_[i];
      const int64_t count = message.end.value() - message.begin.value();
      if (count > 0 && (bytes > kMessageBytesMax || count == kMessageRecordsMax)) break;
      ++message.end;
    }
  }
  sent_ = std::max(sent_, Position(message.end.value() - 1));
  follower.in_flight = {.id = message.id,
                        .generation = generation_,
                        .install = message.install,
                        .begin = message.begin,
                        .end = message.end,
                        .moved_at = now};
  if (message.install) {
    follower.slow = true;
    follower.install_bytes = 0;
  }
  if (!follower.silent_since.has_value()) follower.silent_since = now;
  return message;
}

void ShardPrimary::OnProgress(const FollowerKey& to, MessageId id, int64_t bytes, Instant now) {
  const auto it = followers_.find(to);
  if (it == followers_.end()) return;
  Follower& follower = it->second;
  if (!follower.in_flight.has_value() || follower.in_flight->id != id) return;
  if (follower.in_flight->install) follower.install_bytes += bytes;
  follower.in_flight->moved_at = now;
}

void ShardPrimary::OnAnswer(const FollowerKey& from, MessageId id, const ReplicaAnswer& answer,
                            Instant now) {
  const auto it = followers_.find(from);
  if (it == followers_.end()) return;
  Follower& follower = it->second;
  if (!follower.in_flight.has_value() || follower.in_flight->id != id) return;
  const InFlight message = *std::exchange(follower.in_flight, std::nullopt);
  if (answer.kind == ReplicaAnswer::Kind::kFenced) deposed_ = true;
  if (answer.kind == ReplicaAnswer::Kind::kNotYet) follower.slow = true;
  if (answer.kind != ReplicaAnswer::Kind::kHolds) {
    Retry(follower, now);
    Trim();
    return;
  }
  follower.silent_since.reset();
  follower.slow = false;
  follower.unreachable = false;
  follower.confirmed = message.generation == generation_;
  follower.installed = answer.term == term_;
  const Position before = follower.acked;
  if (follower.installed) {
    follower.acked = std::min(answer.position, last_);
    follower.counted = true;
  }
  if (follower.installed ? message.begin < message.end && follower.acked <= before
                         : message.install) {
    Retry(follower, now);  // It answers, but does not accept what it is sent.
  } else {
    follower.back_off = kBackOffMin;
  }
  if (follower.installed && follower.acked.value() + kMessageRecordsMax >= last_.value()) {
    follower.install_bytes = 0;
  }
  Commit();
  Trim();
}

void ShardPrimary::Retry(Follower& follower, Instant now) {
  follower.next_try = now + follower.back_off;
  follower.back_off = std::min(follower.back_off * 2, kBackOffMax);
}

void ShardPrimary::OnLogged(Position position) {
  logged_position_ = std::max(logged_position_, position);
  Commit();
  Trim();
}

Instant ShardPrimary::SilentTooLong(const Follower& follower) const {
  if (!follower.silent_since.has_value()) return Instant::InfiniteFuture();
  Instant since = *follower.silent_since;
  if (follower.counted && !follower.slow) return since + kUnreachableAfter;
  // Only the progress of the present attempt counts: a series of failed attempts is silence.
  if (!follower.in_flight.has_value()) return since + kSlowUnreachableAfter;
  since = std::max(since, follower.in_flight->moved_at);
  return since + kSlowUnreachableAfter +
         absl::Seconds(static_cast<double>(follower.install_bytes) / kTakenBytesPerSecond);
}

Instant ShardPrimary::NextDeadline(const MayInstall& may_install) const {
  Instant next = Instant::InfiniteFuture();
  if (deposed_) return next;
  for (const auto& [key, follower] : followers_) {
    if (WantsMessage(follower) && (!NeedsInstall(follower) || may_install(key))) {
      next = std::min(next, follower.next_try);
    }
    if (!follower.unreachable) next = std::min(next, SilentTooLong(follower));
  }
  return next;
}

void ShardPrimary::Tick(Instant now) {
  if (deposed_) return;
  for (auto& [key, follower] : followers_) {
    if (now >= SilentTooLong(follower)) follower.unreachable = true;
  }
}

bool ShardPrimary::HasCountedFollowers() const {
  return std::any_of(followers_.begin(), followers_.end(),
                     [](const auto& each) { return each.second.counted; });
}

std::vector<ReplicaReport> ShardPrimary::Reports() const {
  std::vector<ReplicaReport> reports;
  if (deposed_) return reports;
  for (const auto& [key, follower] : followers_) {
    if (follower.unreachable) {
      reports.push_back({.replica = key, .filled = false});
    } else if (!follower.in_sync && follower.counted && follower.confirmed && follower.installed &&
               follower.acked >= committed_position_) {
      reports.push_back({.replica = key, .filled = true});
    }
  }
  return reports;
}

// Advances the committed position to what every counted follower and the log have.
void ShardPrimary::Commit() {
  if (deposed_) return;
  if (logged_ && awaits_log_ && !Planted(PlantedBug::kAcknowledgeUnheardLog)) return;
  Position committed = last_;
  if (logged_ && !Planted(PlantedBug::kAcknowledgeBeforeLogged))
    committed = std::min(committed, logged_position_);
  for (const auto& [key, follower] : followers_) {
    if (Planted(PlantedBug::kAcknowledgeBeforeReplica)) break;
    if (follower.counted) committed = std::min(committed, follower.acked);
  }
  while (!uncommitted_.empty() && uncommitted_.front().first <= committed) {
    committed_position_ = uncommitted_.front().first;
    committed_version_ = uncommitted_.front().second;
    uncommitted_.pop_front();
  }
}

// Drops records that will be sent to no follower.
void ShardPrimary::Trim() {
  Position needed = last_.Next();
  for (const auto& [key, follower] : followers_) {
    if (follower.installed) needed = std::min(needed, follower.acked.Next());
    if (follower.in_flight.has_value() && follower.in_flight->install) {
      needed = std::min(needed, follower.in_flight->end);
    }
  }
  const int64_t more = InstallBytes();
  const size_t records_max = kKeptRecordsMax + static_cast<size_t>(more / kBytesARecord);
  const auto too_many = [&] {
    if (kept_.size() <= kKeptRecordsMin) return false;
    return kept_.size() > records_max || kept_bytes_ > kKeptBytesMax + more;
  };
  while (!kept_.empty() && (oldest_kept() < needed || too_many())) {
    kept_bytes_ -= kept_.front();
    kept_.pop_front();
  }
}

int64_t ShardPrimary::InstallBytes() const {
  int64_t bytes = 0;
  for (const auto& [key, follower] : followers_) bytes = std::max(bytes, follower.install_bytes);
  return bytes;
}

}  // namespace capstan::server
