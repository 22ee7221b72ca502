// JobMembers: the membership that a job's servers apply, and how far each server has come with it.
//
// A member begins inactive. The servers set a member's count of finished iterations when they see
// it change from inactive to active, and they may skip generations; so a member is made active only
// once all servers have applied a membership in which it is inactive, and gets work only once all
// have applied one in which it is active:
//
//   Add -> LISTED --all applied--> may activate --Activate--> ACTIVE --all applied--> ready
//             ^------------------------Deactivate-------------------/
//
// The servers that count are those that are primaries of shards now. One that becomes primary later
// learns of the members with the routing table that makes it so: a member that was ready stays
// ready, but no other becomes active or ready before that server has applied the table.
// Owned by JobShared. Thread safety: thread-compatible.
// Invariants: (1) the generation grows with every change.
//             (2) the incarnation floor never falls.
//             (3) what a server acknowledged never decreases, until it is forgotten.
#ifndef CAPSTAN_SCHEDULER_CORE_SHARDS_JOB_MEMBERS_H_
#define CAPSTAN_SCHEDULER_CORE_SHARDS_JOB_MEMBERS_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "scheduler/core/messages/loaded_check.h"
#include "scheduler/core/messages/messages.h"
#include "scheduler/core/shards/making_watch.h"

namespace capstan::scheduler {

class JobMembers {
 public:
  // The servers that are primaries, each with the routing generation that made it so.
  using Primaries = std::map<NodeId, Generation>;

  // `first`: the first generation of the membership, above all that the shards have seen.
  JobMembers(const Primaries& primaries, Instant now, Generation first = Generation(1));

  void SetPrimaries(const Primaries& primaries, Instant now);
  void Forget(const NodeId& server);  // It died: a later incarnation of it has applied nothing.

  void Add(Rank rank, Incarnation incarnation,
           Instant now);  // Replaces an earlier incarnation of the rank.
  void Remove(Rank rank, Instant now);
  // Fences off all incarnations below `floor`, and those that an earlier scheduler gave out: a
  // store that was restored from a backup may not know them.
  void Fence(Incarnation floor, Instant now);
  // Adopts a job of another cluster: no server here has applied anything, and generations begin
  // above all that may have been made since its record.
  void Adopt(Instant now);
  void Activate(Rank rank, Iteration start_iteration, Instant now);  // REQUIRES: MayActivate(rank).
  void Deactivate(Rank rank, Instant now);                           // No effect if not active.

  // All updates from now on have that factor of the learning rate; no work must be leased before
  // HasLearningRate. No effect if it is the factor already.
  void SetLearningRateFactor(double factor, Instant now);
  // Sets the training time that servers learn. No effect if it is the same.
  void SetClock(int64_t seconds, Instant now);
  bool HasLearningRate() const { return factor_since_ == Generation(0); }  // All servers have it.

  const Member* Find(Rank rank) const;  // Null: it is not listed.
  bool MayActivate(Rank rank) const;
  bool IsReady(Rank rank) const;  // Active, and every server knows.

  // A server, primary or not, has applied these. Older news change nothing.
  void Acknowledge(const NodeId& server, Generation routing, Generation membership);
  bool tables_ready() const;  // Every primary has applied the table that made it one.

  // Every primary has applied a membership without the incarnations that have ended: it refuses
  // what they sent before, and what arrives late.
  bool AreDeadFenced() const { return AppliedByAll() >= left_out_; }

  // Returns a primary that has not applied the newest membership, or the table that made it
  // primary. nullopt if all have.
  std::optional<NodeId> Behind() const;

  // The server that is behind and has made no progress for the longest time.
  struct LateServer {
    NodeId node;
    Instant since;  // No progress since then.
  };
  std::optional<LateServer> Latest() const;
  MakingWatch& making() { return making_; }
  const MakingWatch& making() const { return making_; }
  const JobMembership& membership() const { return membership_; }

  // ---- durable state, in the form of scheduler/store/archive.h
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(membership_, changed_, since_, factor_since_, primaries_, applied_);
    CheckLoaded(archive, [this] { return Check(); });
  }
  // The servers get their whole time again. `first`: the least generation from now on, and the
  // least incarnation that this scheduler gives out.
  void Restored(Instant now, Generation first = Generation(0));

 private:
  struct Applied {
    Generation routing;
    Generation membership;
    template <typename Archive>
    void serialize(Archive& archive) {
      archive(routing, membership);
    }
  };

  // Errors: kDataLoss  members that cannot be: not ascending, or without an entry of since_.
  absl::Status Check() const;
  Member* FindToChange(Rank rank);  // Null: it is not listed.
  void Changed(Instant now);
  Generation AppliedBy(const NodeId& server) const;  // 0: not the table that made it primary.
  bool IsBehind(const NodeId& server) const { return AppliedBy(server) < membership_.generation; }
  Generation AppliedByAll() const;
  Instant StandsSince(const NodeId& server) const;
  void NoteReady();

  JobMembership membership_;
  Incarnation first_incarnation_;  // This scheduler gives out none below it. Not durable.
  Instant changed_;                // When the membership or the primaries changed last.
  // When the member was listed, activated or deactivated; 0: it is active and all know.
  std::map<Rank, Generation> since_;
  Generation factor_since_;  // When the learning rate changed; 0: all have applied it.
  Generation left_out_;      // The newest membership without an earlier member. Not durable.
  Primaries primaries_;
  std::map<NodeId, Applied> applied_;  // Keyed by server; only servers that have reported.
  MakingWatch making_;                 // Not durable.
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_SHARDS_JOB_MEMBERS_H_
