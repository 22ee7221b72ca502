// ConnectionLimits: decides which connections a listener keeps, of all addresses and of each one.
//
//   Add -> UNPROVEN --Prove: its peer has shown who it is--> PROVEN --Remove-->
//             \--no proof in time, or no room: the listener closes it
//
// Anybody who reaches a port can open connections, and each costs a descriptor and memory before it
// is known whose it is. So few may be unproven, and not for long. If there is no room for a new
// one, an unproven one is closed: the oldest whose peer has said nothing, else the oldest. A proven
// one is never closed. So an address that floods the port loses its own connections, not those of
// others.
//
// Pure: the listener brings the time, and closes what it is told to.
// Thread safety: thread-compatible.
// Invariant: after Add no bound of Options is exceeded by an unproven connection.
#ifndef CAPSTAN_COMMON_NET_SOCKET_CONNECTION_LIMITS_H_
#define CAPSTAN_COMMON_NET_SOCKET_CONNECTION_LIMITS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/time/instant.h"

namespace capstan {

class ConnectionLimits {
 public:
  using Id = int64_t;  // Later connections have larger ones.

  struct Options {
    int connections_max = 4096;  // Proven and unproven ones.
    int connections_per_address_max = 1024;
    int unproven_max = 256;
    int unproven_per_address_max = 128;
    absl::Duration prove_within = absl::Seconds(5);
    // An unproven connection has at least this long before a new one takes its place
    // (MayAcceptFrom).
    absl::Duration undisturbed = absl::Milliseconds(500);
  };
  explicit ConnectionLimits(const Options& options) : options_(options) {}

  // Returns when the listener may accept the next connection: now, unless connections that came
  // just before take all places of unproven ones. Until then new peers wait in the kernel's queue.
  Instant MayAcceptFrom(Instant now) const;

  // Adds an unproven connection. Returns and forgets the connection that must be closed for it,
  // which may be itself. REQUIRES: `id` is larger than all before.
  std::optional<Id> Add(Id id, const std::string& address, Instant now);
  void NoteHeard(Id id);  // Its peer has said something. REQUIRES: unproven.
  void Prove(Id id);      // REQUIRES: unproven.
  void Remove(Id id);     // It is closed. No effect if it is not known.

  // Returns and forgets the connections that have not proved themselves in time.
  std::vector<Id> TakeExpired(Instant now);
  // Returns and forgets the unproven connection that would be closed first. It is for a listener
  // whose process is out of descriptors.
  std::optional<Id> TakeUnproven();
  Instant NextDeadline() const;  // When TakeExpired has something to return.

  int count() const { return static_cast<int>(connections_.size()); }

 private:
  struct Connection {
    std::string address;
    Instant since;
    bool heard = false;
    bool proven = false;
  };
  struct Counts {
    int all = 0;
    int unproven = 0;
  };

  // Returns the unproven connection to close first, one of `address` unless that is null. It is
  // `newcomer` only if there is no other.
  std::optional<Id> First(const std::string* address, std::optional<Id> newcomer) const;

  const Options options_;
  std::map<Id, Connection> connections_;
  std::set<Id> unproven_;  // Oldest first, since ids grow.
  std::map<std::string, Counts> addresses_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_SOCKET_CONNECTION_LIMITS_H_
