// Membership: which daemons are in the cluster. A daemon holds a lease that each of its syncs
// renews; when the lease runs out it is dead, and only registering again (a new incarnation) brings
// it back. While the scheduler itself is cut off (isolation.h) nobody is declared dead.
//
//   Register -> ALIVE --lease runs out, or its successor registers--> DEAD --> forgotten after an
//                | \ Renew(leaving), SetDraining -> ALIVE, closing            hour, or after 1024
//                |                                  (gets no new work)         more deaths, unless
//                |                                                             it is to be drained
//                 \ Broken: dead unless it renews within broken_limit
//
// Thread safety: thread-compatible.
// Invariants: (1) at most one live incarnation a name; incarnations of a name grow.
//             (2) leaving is never taken back within an incarnation; draining is a name's, and
//                 stays until it is taken back.
#ifndef CAPSTAN_SCHEDULER_CORE_NODES_MEMBERSHIP_H_
#define CAPSTAN_SCHEDULER_CORE_NODES_MEMBERSHIP_H_

#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "scheduler/core/messages/events.h"
#include "scheduler/core/messages/messages.h"
#include "scheduler/core/nodes/isolation.h"
#include "scheduler/core/nodes/registration_limits.h"

namespace capstan::scheduler {

struct Node {
  NodeId id;
  NodeInfo info;
  Incarnation incarnation;
  bool alive = true;
  bool leaving = false;   // It is about to stop.
  bool draining = false;  // Somebody asked to move all away from it.
  bool heard = false;  // Since this scheduler started; else it may have died while there was none.
  Instant registered;
  Instant last_seen;
  std::optional<Instant> lease_from;    // After Restored, until it renews: its lease counts from.
  std::optional<Instant> broken_since;  // Its connection broke and it has not renewed since.
  // It was silent until then, in this incarnation of the scheduler.
  std::optional<Instant> returned;

  bool closing() const { return leaving || draining; }
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(id, info, incarnation, alive, leaving, draining, registered, last_seen);
  }
};

class Membership {
 public:
  struct Options {
    absl::Duration lease = absl::Seconds(3);  // > 0.
    absl::Duration broken_limit =
        absl::Milliseconds(500);  // The lease of a node whose connection broke.
    // The dead stay listed this long, and at most so many of them. Those that are to be drained
    // stay until that is taken back.
    absl::Duration remember = absl::Hours(1);
    int dead_max = 1024;
    RegistrationLimits::Options registrations;
    // A node is silent if none of its messages came for so long; well above the interval of syncs.
    absl::Duration silence = absl::Milliseconds(500);
    Isolation::Options isolation;
    // How long a node takes at most to find the scheduler again: the silent have it when isolation
    // ends, before their leases count.
    absl::Duration rejoin = absl::Milliseconds(2500);
  };
  explicit Membership(const Options& options);

  // Adds a daemon under `incarnation`. A live daemon of the same name, role and identity is dead
  // from now on (NodeDied comes before NodeJoined) if it is unheard or had the same address, as is
  // one of another identity that is unheard and out of time.
  // Errors: kInvalidArgument  malformed name, empty address, a worker without task slots, or the
  //                           name of a live daemon of the other role.
  //         kAlreadyExists    the name of a daemon that is heard; names who has it.
  //         kAborted          the same, but that one is unheard: ask again, it may be dying.
  //         kResourceExhausted  too many have registered (registration_limits.h): ask again.
  absl::StatusOr<NodeId> Register(const NodeInfo& info, Incarnation incarnation, Instant now,
                                  Events& events);

  // Renews the lease.
  // Errors: kNotFound  no such node.   kAborted  `incarnation` is not the live one.
  absl::Status Renew(const NodeId& id, Incarnation incarnation, bool leaving, Instant now);

  // The node's connection broke: a process that was killed leaves at once. One that lives renews.
  // No effect if `incarnation` is not the live one, or if the node was silent until shortly before:
  // then a call of it may have arrived late, which it had given up.
  void Broken(const NodeId& id, Incarnation incarnation, Instant now);

  // Errors: kNotFound  no such node.
  absl::Status SetDraining(const NodeId& id, bool draining);

  // Declares dead whose lease has run out (NodeDied each), forgets the long dead. While isolation
  // holds it declares nobody dead, and is to be called again after Options::silence.
  void Tick(Instant now, Events& events);
  bool isolated() const { return isolation_.holds(); }
  Instant NextDeadline() const;

  const Node* Find(const NodeId& id) const;  // Null: unknown. Dead ones are found.
  std::vector<const Node*> All() const;      // Servers first, then workers, each by name.
  // Alive, heard and not closing, by name.
  std::vector<const Node*> Available(Role role) const;
  // Some that lived before the restart are unheard and may still be on their way back.
  bool MayReturn(Instant now) const;

  // ---- durable state, in the form of scheduler/store/archive.h
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(nodes_);
  }
  // The live get their whole lease again, after `rejoin`, in which they find their way back.
  void Restored(Instant now, absl::Duration rejoin);

 private:
  NodeId FreeName(Role role) const;
  absl::Status MayReplace(const Node& holder, const NodeInfo& info, Instant now) const;
  Instant DeadlineOf(const Node& node) const;  // REQUIRES: the node is alive.
  // InfiniteFuture: it lives, or is to be drained.
  Instant ForgottenAt(const Node& node) const;
  void NoteIsolation(Instant now, Events& events);
  void RenewSilent(Instant now);  // Their leases begin after Options::rejoin.
  void ForgetOldestDead();

  const Options options_;
  std::map<NodeId, Node> nodes_;
  Isolation isolation_;
  RegistrationLimits limits_;
  Instant observed_;  // When it was last looked at whether isolation holds.
};

absl::string_view RoleName(Role role);  // "server", "worker".

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_NODES_MEMBERSHIP_H_
