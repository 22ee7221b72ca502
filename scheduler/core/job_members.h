// JobMembers: the membership that a job's servers apply, and how far each server has come with it.
//
// A member begins inactive. The servers set a member's count of finished iterations when they see
// it change from inactive to active, and they may skip generations; so a member is made active only
// once all servers have applied a membership in which it was not, and gets work only once all have
// applied one in which it is:
//
//   Add -> LISTED --all applied--> may activate --Activate--> ACTIVE --all applied--> ready
//             ^------------------------Deactivate-------------------/
//
// Thread safety: thread-compatible.
// Invariants: (1) the generation grows with every change and starts at 1.
//             (2) what a server acknowledged never decreases.
#ifndef CAPSTAN_SCHEDULER_CORE_JOB_MEMBERS_H_
#define CAPSTAN_SCHEDULER_CORE_JOB_MEMBERS_H_

#include <optional>
#include <vector>

#include "absl/container/btree_map.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "scheduler/core/messages.h"

namespace capstan::scheduler {

class JobMembers {
 public:
  // For a job whose shards lie on `servers`.
  JobMembers(const std::vector<ServerRef>& servers, Instant now);

  void Add(Rank rank, Incarnation incarnation,
           Instant now);  // Replaces an earlier life of the rank.
  void Remove(Rank rank, Instant now);
  void Activate(Rank rank, Iteration start_iteration, Instant now);  // REQUIRES: MayActivate(rank).
  void Deactivate(Rank rank, Instant now);                           // No effect if not active.

  bool IsActive(Rank rank) const;
  bool MayActivate(Rank rank) const;
  bool IsReady(Rank rank) const;  // Active, and every server knows.

  Iteration StartIteration(Rank rank) const;  // Of its newest activation; 0 if not listed.

  // A server has applied these. Older and unknown news change nothing.
  void Acknowledge(const NodeId& server, Generation routing, Generation membership);
  bool tables_ready() const;  // Every server has applied the routing table.

  // A server that has not applied the newest membership or the routing table. Nothing if all have.
  std::optional<NodeId> Behind() const;
  Instant changed() const { return changed_; }  // When the newest membership was made.

  const JobMembership& membership() const { return membership_; }

  // ---- durable state, in the form of scheduler/store/archive.h
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(membership_, changed_, since_, applied_);
  }
  void Restored(Instant now) { changed_ = now; }  // The servers get their whole time again.

 private:
  struct Applied {
    Generation routing;
    Generation membership;
    template <typename Archive>
    void serialize(Archive& archive) {
      archive(routing, membership);
    }
  };

  Member* Find(Rank rank);
  const Member* Find(Rank rank) const;
  void Changed(Instant now);
  Generation AppliedByAll() const;

  JobMembership membership_;
  Instant changed_;
  absl::btree_map<Rank, Generation>
      since_;  // When the member was listed, activated or deactivated.
  absl::btree_map<NodeId, Applied> applied_;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_JOB_MEMBERS_H_
