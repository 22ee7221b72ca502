// LineLimiter: limits the lines that each of many peers may write to a log, so that none can fill
// it.
//
// Each peer has a bucket: `burst` lines at once, and one more for each `interval`. One more bucket
// limits all together, so that many peers cannot do what one cannot. Peers beyond kPeersMax share
// a bucket. Lines that a peer may not write are counted until its next one.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_SECURITY_LINE_LIMITER_H_
#define CAPSTAN_COMMON_SECURITY_LINE_LIMITER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace capstan {

class LineLimiter {
 public:
  struct Rate {
    int burst;                // > 0.
    absl::Duration interval;  // > 0.
  };
  static constexpr size_t kPeersMax = 1024;
  static constexpr Rate kAll = {.burst = 2000, .interval = absl::Milliseconds(100)};
  // A peer that asks for nothing during this time has stopped.
  static constexpr absl::Duration kQuiet = absl::Seconds(10);
  static constexpr absl::Duration kLookInterval = absl::Seconds(1);

  struct LeftOut {
    std::string peer;
    int64_t lines = 0;
  };

  // Returns the lines of `peer` that were left out since its last one if it may write one now.
  // Empty: it may not. `rate` is the same in all calls for one peer.
  std::optional<int64_t> Take(const std::string& peer, const Rate& rate, absl::Time now);

  // True: Take has left out lines that neither it nor TakeLeftOut has returned.
  bool has_left_out() const { return left_out_ > 0; }

  // Returns the lines that were left out of peers that have stopped; `all`: of peers that go on,
  // too. It looks for those that have stopped at most once in kLookInterval.
  std::vector<LeftOut> TakeLeftOut(absl::Time now, bool all);

 private:
  struct Bucket {
    Rate rate;
    double lines = 0;   // It may write as many now.
    absl::Time filled;  // The time for which `lines` is true.
    absl::Time asked;
    int64_t left_out = 0;
  };

  static void Fill(Bucket& bucket, absl::Time now);
  // Forgets the peers that may write a whole burst again.
  void ForgetIdle(absl::Time now);
  Bucket& BucketOf(const std::string& peer, const Rate& rate, absl::Time now);

  std::map<std::string, Bucket> buckets_;
  Bucket all_ = {.rate = kAll, .lines = kAll.burst, .filled = {}, .asked = {}};
  absl::Time forgotten_;  // The last ForgetIdle.
  absl::Time looked_;     // The last TakeLeftOut that was not too early.
  int64_t left_out_ = 0;  // Sum over the buckets.
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_SECURITY_LINE_LIMITER_H_
