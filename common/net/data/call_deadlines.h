// When calls of one connection have waited too long.
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

// A call's time begins anew with each byte that moves on its connection: answers come one after the
// other, and behind a slow link the last of many comes late. Giving it up would not help: what was
// asked is sent all the same, and asked for again behind it. So a call is overdue once it is as old
// as its timeout, and nothing has moved for as long. Thread safety: thread-compatible.
class CallDeadlines {
 public:
  using CallId = uint64_t;

  void Add(CallId call, Instant now, absl::Duration timeout);
  void Remove(CallId call);  // Ignored if it is not there.
  // Bytes of calls that have come and gone so far, without signs of life.
  void Moved(Instant now, int64_t bytes);
  // Oldest first. They stay until they are removed.
  std::vector<CallId> Overdue(Instant now);
  // When the next one may be overdue that is not so at `now`; InfiniteFuture() if there is none.
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
