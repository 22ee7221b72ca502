// Membership: the table of the daemons in the cluster. A daemon holds a lease that each of its
// syncs renews; when the lease runs out it is dead, and only registering again (a new incarnation)
// brings it back. While the scheduler itself is cut off (isolation.h) nobody is declared dead.
//
//   Register -> ALIVE --lease runs out, or its successor registers--> DEAD --> forgotten after an
//                | \ Renew(leaving), SetDraining -> ALIVE, closing            hour, or after 1024
//                |                                  (gets no new work)         more deaths, unless
//                |                                                             it is to be drained
//                 \ Broken: dead unless it renews within broken_limit
//
// Owned by SchedulerCore. Thread safety: thread-compatible.
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
  bool draining = false;  // A user asked to move everything away from it.
  bool heard = false;     // Since this scheduler started; if not, it may have died before.
  Instant registered;
  Instant last_seen;
  // Its lease counts from then on. Set by Restored and at the end of isolation, until it renews.
  std::optional<Instant> lease_from;
  std::optional<Instant> broken_since;  // Its connection broke, and no renewal has come since.
  // When it was heard again after a silence; not durable.
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
    // Dead nodes stay listed this long, and at most `dead_max` of them. Nodes that are to be
    // drained stay until the drain is cancelled.
    absl::Duration remember = absl::Hours(1);
    int dead_max = 1024;
    RegistrationLimits::Options registrations;
    // A node is silent if none of its messages came for so long; well above the interval of syncs.
    absl::Duration silence = absl::Milliseconds(500);
    Isolation::Options isolation;
    // The longest time that a node takes to find the scheduler again. Silent nodes have this time
    // when isolation ends, before their leases count.
    absl::Duration rejoin = absl::Milliseconds(2500);
  };
  explicit Membership(const Options& options);

  // Adds a daemon under `incarnation`. A live daemon of the same name and role is dead from now on
  // (NodeDied comes before NodeJoined) if it has the same identity and is silent or had the same
  // address, or if its lease has run out.
  // Errors: kInvalidArgument  malformed name, empty address, a worker without task slots, or the
  //                           name of a live daemon of the other role.
  //         kAlreadyExists    the name of another daemon, which is heard; names that daemon.
  //         kAborted          the same, but it is silent or its connection broke: it may be dying,
  //                           so ask again.
  //         kResourceExhausted  too many have registered (registration_limits.h): ask again.
  absl::StatusOr<NodeId> Register(const NodeInfo& info, Incarnation incarnation, Instant now,
                                  Events& events);

  // Renews the lease.
  // Errors: kNotFound  no such node.   kAborted  `incarnation` is not the live one.
  absl::Status Renew(const NodeId& id, Incarnation incarnation, bool leaving, Instant now);

  // The node's connection broke. If its process was killed, the node is dead soon; if it lives, it
  // renews. No effect if `incarnation` is not the live one, while isolation holds, or if the node
  // was silent until shortly before: then the broken call may be a late one that it had given up.
  void Broken(const NodeId& id, Incarnation incarnation, Instant now);

  // Errors: kNotFound  no such node.
  absl::Status SetDraining(const NodeId& id, bool draining);

  // Declares nodes dead whose lease has run out (one NodeDied each), and forgets those that died
  // long ago. While isolation holds it declares nobody dead, and is to be called again after
  // Options::silence.
  void Tick(Instant now, Events& events);
  bool isolated() const { return isolation_.holds(); }
  Instant NextDeadline() const;

  const Node* Find(const NodeId& id) const;  // Null: unknown. Dead ones are found.
  std::vector<const Node*> All() const;      // Servers first, then workers, each by name.
  // Alive, heard and not closing, by name.
  std::vector<const Node*> Available(Role role) const;
  // True if nodes that lived before the restart are not heard yet and may still come back.
  bool MayReturn(Instant now) const;

  // ---- durable state, in the form of scheduler/store/archive.h
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(nodes_);
  }
  // Live nodes get their whole lease again, after `rejoin`, in which they find the scheduler.
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
  Instant observed_;  // When isolation was last checked.
};

absl::string_view RoleName(Role role);  // "server", "worker".

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_NODES_MEMBERSHIP_H_
