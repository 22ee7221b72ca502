// AuditLog: a file that says who called what, from where, on which job, and whether it was allowed.
// It has one JSON object a line, and at least `time` and `daemon` in each:
//
//   {"time":"2026-11-27T21:04:05.678Z","daemon":"scheduler","peer":"10.0.0.7:51234",
//    "identity":"capstan://prod/user/ann","method":"/capstan.v1.Scheduler/StopJob",
//    "job":"lenet-1","allowed":true}
//   {...,"allowed":false,"refused_by":"gate","reason":"...","suppressed":412}
//
// A flood fills neither memory nor the disk: the file is rotated, each peer may have only so many
// lines (LineLimiter), and "suppressed" counts the lines that were left out before. A file that
// cannot be rotated grows on: its lines are kept, and rotation is tried again. Counters count every
// call. Refusals are logged as warnings, too, under the same limits.
// The servers call it (common/net/gate, common/net/data/data_server.h); each process has one. A
// handler need not: its PERMISSION_DENIED is recorded where its answer is sent.
// Thread safety: thread-safe.
#ifndef CAPSTAN_COMMON_SECURITY_AUDIT_LOG_H_
#define CAPSTAN_COMMON_SECURITY_AUDIT_LOG_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/security/line_limiter.h"

namespace capstan {

// The result of a call, for counters: it was allowed, or what refused it.
enum class CallOutcome {
  kAllowed,
  kHandshake,    // The connection's TLS handshake failed: there was no call yet.
  kBadGreeting,  // A data connection began with a wrong token, or as another protocol.
  kGate,         // The certificate, or what its role may call.
  kHandler,      // The content of the message: a node's name, a job's owner, a folder.
};
inline constexpr size_t kCallOutcomes = 5;

absl::string_view CallOutcomeName(CallOutcome outcome);  // "allowed", "handshake", "greeting", ...

// Fields that are not known are empty, and absent from the line. They may have any bytes.
struct AuditedCall {
  std::string peer = {};    // host:port of the caller.
  std::string caller = {};  // Its identity, capstan://...
  std::string method = {};  // gRPC's path: "/capstan.v1.Scheduler/SubmitJob".
  std::string job = {};
  std::string node = {};
};

// How many calls of a method had that outcome. Methods that the call policy lacks are counted as
// "".
struct CallCount {
  absl::string_view method;
  CallOutcome outcome = CallOutcome::kAllowed;
  int64_t calls = 0;
};

class AuditLog {
 public:
  struct Options {
    std::string daemon;                   // "scheduler", or the name of the node.
    int64_t file_bytes_max = 64LL << 20;  // A file that would be larger is rotated.
    int old_files_max = 8;                // audit.1.jsonl is the newest of them.
    LineLimiter::Rate refusals = {.burst = 100, .interval = absl::Seconds(1)};
    LineLimiter::Rate reads = {.burst = 20, .interval = absl::Seconds(10)};
    std::function<absl::Time()> now = absl::Now;
  };
  // Counts, and writes no file until Open.
  explicit AuditLog(Options options);
  ~AuditLog();  // Writes how many lines were left out since the last one of each peer.

  // Appends to `path` from now on. The file and its successors are for their owner alone (0600).
  // Errors: kUnavailable  it cannot be opened; names it.
  absl::Status Open(const std::string& path);

  // Records a call that was admitted, of a method that the call policy audits. `answer` is the
  // status of its end, which is no refusal.
  void Allowed(const AuditedCall& call, const absl::Status& answer);
  // Counts a call that was admitted, of another method.
  void CountAllowed(absl::string_view method);

  // Records a call that was refused, or a connection; `why` has the reason. Any thread may call it,
  // also while a call is being judged: it waits for the file alone. Beside its own line it may
  // write one for each peer that has stopped (kPeersMax of LineLimiter).
  void Refused(const AuditedCall& call, CallOutcome by, const absl::Status& why);

  // Returns all counts above 0, ordered by method.
  std::vector<CallCount> Counts() const;

 private:
  class File;
  // Counts of one method, by outcome.
  using MethodCounts = std::array<std::atomic<int64_t>, kCallOutcomes>;

  void Count(absl::string_view method, CallOutcome outcome);
  // Writes how many lines were left out of peers that have stopped; of all peers if `all`.
  void WriteLeftOut(bool all);
  void Write(const std::string& line) ABSL_LOCKS_EXCLUDED(file_mutex_);

  const Options options_;
  std::vector<MethodCounts> counts_;  // Ordered as CallPolicy(); the last one: other methods.

  absl::Mutex mutex_;
  LineLimiter limiter_ ABSL_GUARDED_BY(mutex_);

  absl::Mutex file_mutex_;                                   // Never taken with mutex_.
  std::unique_ptr<File> file_ ABSL_GUARDED_BY(file_mutex_);  // Null: not opened.
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_SECURITY_AUDIT_LOG_H_
