// Identity: who a process is according to its certificate, in the form of a URI.
//
//   capstan://CLUSTER/scheduler
//   capstan://CLUSTER/server/ID     capstan://CLUSTER/worker/ID
//   capstan://CLUSTER/user/NAME     capstan://CLUSTER/reader/NAME
//   capstan://CLUSTER/admin/NAME    capstan://CLUSTER/metrics/NAME
//
// A certificate carries it as a URI among its subject alternative names. Each identity has exactly
// one text, so that texts may be compared: the scheme is lower case, and there is no port, user
// info, query, fragment or percent escape.
// Thread safety: values and pure functions.
#ifndef CAPSTAN_COMMON_SECURITY_CERTIFICATES_IDENTITY_H_
#define CAPSTAN_COMMON_SECURITY_CERTIFICATES_IDENTITY_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace capstan {

inline constexpr absl::string_view kIdentityScheme = "capstan://";
// The most characters of a cluster's name and of a peer's name; the least is 1.
inline constexpr size_t kIdentityNameBytesMax = 63;

enum class PeerRole { kScheduler, kServer, kWorker, kUser, kReader, kMetrics, kAdmin };

struct Identity {
  std::string cluster;
  PeerRole role = PeerRole::kReader;
  std::string name;  // Empty exactly if the role is kScheduler.

  friend bool operator==(const Identity&, const Identity&) = default;
};

// Returns "scheduler", "server", "worker", "user", "reader", "metrics" or "admin".
absl::string_view PeerRoleName(PeerRole role);
// Errors: kInvalidArgument  `name` is none of these; the message lists them.
absl::StatusOr<PeerRole> ParsePeerRole(absl::string_view name);

// Checks that `name` is 1 to 63 characters of [a-z0-9.-] and that the first one is a letter or a
// digit, which excludes the path segments "." and "..".
// Errors: kInvalidArgument  it is not; the message begins with `what` ("cluster", "name").
absl::Status CheckIdentityName(absl::string_view what, absl::string_view name);

// Checks the cluster's name and the peer's name; a scheduler has none.
// Errors: kInvalidArgument  names the field, its value and what was expected.
absl::Status CheckIdentity(const Identity& identity);

// Errors: kInvalidArgument  `uri` is not exactly what FormatIdentity() makes of some identity.
absl::StatusOr<Identity> ParseIdentity(absl::string_view uri);

// Returns the URI. REQUIRES: CheckIdentity() accepts `identity`.
std::string FormatIdentity(const Identity& identity);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_SECURITY_CERTIFICATES_IDENTITY_H_
