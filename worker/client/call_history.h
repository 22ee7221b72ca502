// CallHistory: writes a client's requests and its servers' answers to a file, so that
// tests/chaos/history.py can check afterwards that the servers kept their promises.
//
// Off unless CAPSTAN_CALL_HISTORY names a folder. Each client appends to a file of its own there,
// one line at a time, unbuffered: a line that was written stays, however the process ends later.
//
//   H <job> <rank> <incarnation>
//   B <time> <message> push|pull|snapshot <iteration> <slot_begin>-<slot_end> <shard>...
//         The message is about to leave; <shard> is table/shard:sequence (pulls: 0).
//   A <time> <message> <shard>...    A server has answered; <shard> is table/shard:outcome:version,
//         outcome done, not_ready or past.
//   W <time> train|other <start_iteration>    An assignment was accepted.
//
// Times are nanoseconds of the machine's steady clock, the same for all processes. The time of B is
// taken before the message leaves, that of A after the answer has come.
// Thread safety: thread-safe.
#ifndef CAPSTAN_WORKER_CLIENT_CALL_HISTORY_H_
#define CAPSTAN_WORKER_CLIENT_CALL_HISTORY_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/time/clock.h"
#include "common/types/ids.h"
#include "worker/core/push_pull_session.h"

namespace capstan::worker {

class CallHistory {
 public:
  static constexpr char kVariable[] = "CAPSTAN_CALL_HISTORY";

  // Opens this client's file in the folder that the variable names. Returns null if it names none.
  // Errors: kUnavailable  the file cannot be made.
  static absl::StatusOr<std::unique_ptr<CallHistory>> OfEnvironment(const JobId& job, Rank rank,
                                                                    Incarnation incarnation,
                                                                    const Clock& clock);
  // Opens this client's file in `folder`, which exists. `clock` outlives the history. Errors: as
  // above.
  static absl::StatusOr<std::unique_ptr<CallHistory>> Open(const std::string& folder,
                                                           const JobId& job, Rank rank,
                                                           Incarnation incarnation,
                                                           const Clock& clock);
  ~CallHistory();
  CallHistory(const CallHistory&) = delete;
  CallHistory& operator=(const CallHistory&) = delete;

  // Append the lines B, A and W.
  void Begun(const SendMessage& message);
  void Answered(const SendMessage& message, const std::vector<ShardReply>& replies);
  void Assigned(bool trains, Iteration start_iteration);

 private:
  CallHistory(int file, const Clock& clock) : file_(file), clock_(clock) {}
  std::string Head(absl::string_view kind) const;  // "B 1234".
  void Write(std::string line);

  const int file_;
  const Clock& clock_;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_CLIENT_CALL_HISTORY_H_
