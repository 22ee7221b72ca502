// Call policy: who may call what, and which calls are audited. One table for all ports: gRPC and
// data connections.
//
// A method that the table lacks may be called by nobody. The table judges by role
// (common/net/gate/call_gate.h); handlers judge what depends on the message, such as a node's name
// or a job's owner.
// Thread safety: functions without state.
#ifndef CAPSTAN_COMMON_SECURITY_CALL_POLICY_H_
#define CAPSTAN_COMMON_SECURITY_CALL_POLICY_H_

#include <initializer_list>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/security/certificates/identity.h"

namespace capstan {

// A set of roles.
class Roles {
 public:
  constexpr Roles() = default;
  constexpr Roles(std::initializer_list<PeerRole> roles) {  // NOLINT: lists stand for sets.
    for (const PeerRole role : roles) bits_ |= 1u << static_cast<unsigned>(role);
  }
  constexpr bool Has(PeerRole role) const {
    return (bits_ >> static_cast<unsigned>(role) & 1) != 0;
  }

 private:
  unsigned bits_ = 0;
};

inline constexpr Roles kNodeRoles = {PeerRole::kServer, PeerRole::kWorker};

// Which calls of a method the audit log has a line for (audit_log.h).
enum class Audit {
  // The refused ones: the method only shows the state of the cluster, or nodes call it all the
  // time.
  kRefusals,
  // Same as kRefusals. Messages of the method are bytes, which nobody searches for a job.
  kRefusalsOfBytes,
  kReads,  // Also people's calls: the method returns what a job has computed or logged.
  kAll,    // All calls: the method changes something.
};

struct MethodPolicy {
  // It has no default for `audit`, so that each method of the table says it.
  constexpr MethodPolicy(absl::string_view path, Roles roles, Audit audited)
      : method(path), callers(roles), audit(audited) {}

  absl::string_view method;  // gRPC's path: "/capstan.v1.Scheduler/SubmitJob".
  Roles callers;
  Audit audit;
};

// "server, worker".
std::string NamesOf(Roles roles);

// The whole table, ordered by method.
absl::Span<const MethodPolicy> CallPolicy();

// The method's line of the table. Null: it has none.
const MethodPolicy* FindMethodPolicy(absl::string_view method);

// Errors: kPermissionDenied  `caller` may not call `method`; names both, and who may.
absl::Status CheckMayCall(const Identity& caller, absl::string_view method);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_SECURITY_CALL_POLICY_H_
