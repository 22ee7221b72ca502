// ValueCalls: the calls with values, Push, Pull and PushPull, whatever way they came: bytes in,
// bytes out. Messages are parsed and encoded by hand (common/wire): gradients are read where they
// were received, parameters lie where the answer lends them. A caller on this host may leave values
// in memory that it shares instead.
//
// Thread safety: thread-safe.
#ifndef CAPSTAN_SERVER_SERVICE_VALUE_CALLS_H_
#define CAPSTAN_SERVER_SERVICE_VALUE_CALLS_H_

#include <functional>

#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "common/net/frame.h"
#include "server/service/held_jobs.h"
#include "server/service/path_metrics.h"
#include "server/service/shared_segments.h"

namespace capstan::server {

class ValueCalls {
 public:
  // Called exactly once per call, from any thread, under no lock.
  using Done = std::function<void(absl::StatusOr<absl::Cord>)>;
  // Ends a call that waits, with kCancelled; does nothing if it has ended.
  using Cancel = std::function<void()>;

  // All outlive the calls.
  ValueCalls(HeldJobs* jobs, const SharedSegments* segments, PathMetrics* metrics)
      : jobs_(jobs), segments_(segments), metrics_(metrics) {}

  // Carries the request out, and lets go of it before the call waits. Returns what cancels it; null
  // if it has ended. Errors (to `done`): those of HeldJob, common/wire and SharedSegments.
  Cancel Start(DataMethod method, CallPath path, absl::Cord request, Done done);

 private:
  Cancel Push(CallPath path, absl::Cord request, Done done);
  Cancel Pull(CallPath path, absl::Cord request, Done done);
  Cancel PushPull(CallPath path, absl::Cord request, Done done);

  HeldJobs* const jobs_;
  const SharedSegments* const segments_;
  PathMetrics* const metrics_;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_SERVICE_VALUE_CALLS_H_
