// CallDeadlines: finds the calls of one connection that have waited too long.
#ifndef CAPSTAN_COMMON_NET_DATA_CALL_DEADLINES_H_
#define CAPSTAN_COMMON_NET_DATA_CALL_DEADLINES_H_

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "common/time/instant.h"

namespace capstan {

// A call is overdue once it is as old as its timeout, and no byte has moved on its connection for
// as long. Answers come one after the other, and behind a slow link the last of many comes late. To
// give such a call up would not help: the server sends its answer all the same, and the repeated
// call waits behind it.
// Thread safety: thread-compatible.
class CallDeadlines {
 public:
  using CallId = uint64_t;

  void Add(CallId call, Instant now, absl::Duration timeout);
  void Remove(CallId call);  // No effect on an unknown call.
  // `bytes`: the bytes of calls and answers that have come and gone so far, without pings and
  // pongs.
  void Moved(Instant now, int64_t bytes);
  // Returns the overdue calls, ordered by deadline. They stay until they are removed.
  std::vector<CallId> Overdue(Instant now);
  // Returns the first deadline after `now`; InfiniteFuture() if there is none.
  Instant NextAfter(Instant now) const;

 private:
  struct Times {
    Instant deadline;
    absl::Duration timeout;
  };

  absl::flat_hash_map<CallId, Times> calls_;
  std::set<std::pair<Instant, CallId>> order_;  // Ordered by deadline.
  int64_t bytes_ = 0;
  Instant moved_at_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_DATA_CALL_DEADLINES_H_
