// CallGate: judges every call of a server that authenticates, before a handler sees it. Clients
// check the servers that they connect to by its deny list, too.
//
// The connection is authenticated by then: its certificate was signed by the cluster's authority.
// The gate identifies the caller, and refuses a certificate that has expired meanwhile, is on the
// deny list, or belongs to another cluster, and a method that the caller's role may not call. gRPC
// calls it for every method of every service, so a new method is closed until the table has it.
// gRPC does not give it the caller's address, so the audit log lacks the address of calls that it
// refuses there.
// Thread safety: thread-safe.
#ifndef CAPSTAN_COMMON_NET_GATE_CALL_GATE_H_
#define CAPSTAN_COMMON_NET_GATE_CALL_GATE_H_

#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/server_context.h>

#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/security/audit_log.h"
#include "common/security/call_policy.h"
#include "common/security/certificates/certificate.h"
#include "common/security/certificates/deny_list.h"
#include "common/security/certificates/identity.h"

namespace capstan {

class CallGate final : public grpc::AuthMetadataProcessor {
 public:
  struct Options {
    std::string cluster;
    std::string deny_list;      // Path; the file need not exist.
    AuditLog* audit = nullptr;  // Records refusals; outlives the gate. Null: they are only logged.
  };
  explicit CallGate(Options options);

  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* connection,
                       OutputMetadata* consumed, OutputMetadata* response) override;

  // Judges a call by the certificate of its connection. `now` is by the wall clock. A refusal is
  // recorded, with the caller's address `peer` (host:port; empty: it is not known).
  // Errors: kPermissionDenied  names the certificate's identity, the method and the cause.
  absl::Status Check(const CertificateFacts& caller, absl::string_view method, absl::Time now,
                     const std::string& peer = "");

  // Judges a certificate by the deny list alone. `now` is by the wall clock.
  // Errors: kPermissionDenied  names the certificate's identity and the cause.
  absl::Status CheckNotDenied(const CertificateFacts& peer, absl::Time now);

 private:
  static constexpr size_t kKnownMax = 4096;
  // The deny list's file is looked at again after this time: calls are too many to look for each.
  static constexpr absl::Duration kDenyListAge = absl::Seconds(1);

  absl::StatusOr<CertificateFacts> FactsOf(absl::string_view certificate);  // In PEM.
  absl::Status Judge(const CertificateFacts& caller, absl::string_view method, absl::Time now);
  // Returns why the deny list has `peer`; "" if it has not.
  std::string WhyDenied(const CertificateFacts& peer, absl::Time now);
  void Record(const AuditedCall& call, const absl::Status& refusal);

  const Options options_;
  absl::Mutex mutex_;
  DenyList deny_list_ ABSL_GUARDED_BY(mutex_);
  absl::Time deny_list_read_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  // Certificates seen before, by their PEM, because reading one takes longer than a call may.
  absl::flat_hash_map<std::string, CertificateFacts> known_ ABSL_GUARDED_BY(mutex_);
};

// Returns the caller that the gate has admitted. Empty: the server authenticates nobody.
std::optional<Identity> CallerOf(const grpc::ServerContextBase& context);

// Checks a call in which a node names itself: the caller must have that name and one of `roles`. A
// server without credentials accepts all. The refusal is audited as the handler's answer is.
// Errors: kPermissionDenied  names both.
absl::Status CheckCallerIs(const grpc::ServerContextBase& context, Roles roles,
                           absl::string_view name);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_GATE_CALL_GATE_H_
