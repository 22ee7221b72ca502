// CallRights: whether a caller may touch a job here, by its capability
// (common/security/capability.h).
//
// The calls of ParameterService ask it once they know their job, before the job's state is read or
// changed. A capability is verified for each call over gRPC, and once for a data connection, which
// ends with the first call after the expiry (DataServer::Admitted). A job that came without a key,
// as in tests and benchmarks that hold jobs by hand, is open to all on a server that authenticates
// nobody, and closed on others.
// Thread safety: thread-safe.
#ifndef CAPSTAN_SERVER_RPC_CALL_RIGHTS_H_
#define CAPSTAN_SERVER_RPC_CALL_RIGHTS_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/security/capability.h"
#include "proto/parameter_server.pb.h"
#include "server/engine/job/held_job.h"
#include "server/engine/job/held_jobs.h"

namespace capstan::server {

// A capability that was verified, and the key that it was verified with.
struct VerifiedCapability {
  CapabilityKey key;
  Capability capability;
};

// The capability that a caller has shown: with its connection (`verified`), or else with this call.
struct ShownCapability {
  const VerifiedCapability* verified = nullptr;
  absl::string_view bytes = "";  // As they came; empty: none.
};

class CallRights {
 public:
  struct Options {
    bool authenticated = false;                    // Callers have certificates.
    std::function<absl::Time()> now = &absl::Now;  // The wall clock.
  };
  CallRights(const HeldJobs* jobs, Options options);  // The jobs outlive it.

  // Verifies a capability for later calls. Null: it is not needed, because callers are not
  // authenticated and there is none, or its job has no key.
  // Errors: kNotFound          its job is not held here.
  //         kPermissionDenied  there is none, it has expired or is forged; says which.
  absl::StatusOr<std::shared_ptr<const VerifiedCapability>> Verify(
      const std::string& capability) const;

  // The job that a call names, if the caller may make this use of it. A refusal is logged.
  // Errors: kNotFound          the job is not held here.
  //         kPermissionDenied  as above, or the capability is another job's or another task's, or
  //                            only for reading; names both.
  absl::StatusOr<std::shared_ptr<HeldJob>> Find(const JobId& job, const ShownCapability& shown,
                                                const CapabilityUse& use) const;

 private:
  absl::Status Judge(const HeldJob& job, const ShownCapability& shown,
                     const CapabilityUse& use) const;

  const HeldJobs* const jobs_;
  const Options options_;
};

// The use that a worker or a reader makes of a job by a message with this head.
CapabilityUse UseOf(const v1::Caller& caller, CapabilityUse::Access access);

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_RPC_CALL_RIGHTS_H_
