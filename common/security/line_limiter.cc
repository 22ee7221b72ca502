#include "common/security/line_limiter.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace capstan {
namespace {

constexpr char kOthers[] = "others";  // The bucket of the peers beyond kPeersMax.

}  // namespace

void LineLimiter::Fill(Bucket& bucket, absl::Time now) {
  const absl::Duration passed = std::max(now - bucket.filled, absl::ZeroDuration());
  bucket.lines = std::min(bucket.lines + absl::FDivDuration(passed, bucket.rate.interval),
                          double{1} * bucket.rate.burst);
  bucket.filled = now;
}

void LineLimiter::ForgetIdle(absl::Time now) {
  for (auto each = buckets_.begin(); each != buckets_.end();) {
    Bucket& bucket = each->second;
    Fill(bucket, now);
    const bool idle = bucket.left_out == 0 && bucket.lines >= bucket.rate.burst;
    each = idle ? buckets_.erase(each) : std::next(each);
  }
  forgotten_ = now;
}

LineLimiter::Bucket& LineLimiter::BucketOf(const std::string& peer, const Rate& rate,
                                           absl::Time now) {
  const auto found = buckets_.find(peer);
  if (found != buckets_.end()) return found->second;
  if (buckets_.size() >= kPeersMax && now - forgotten_ >= kQuiet) ForgetIdle(now);
  const bool full = buckets_.size() >= kPeersMax;
  Bucket fresh{.rate = rate, .lines = double{1} * rate.burst, .filled = now, .asked = now};
  return buckets_.try_emplace(full ? kOthers : peer, fresh).first->second;
}

std::optional<int64_t> LineLimiter::Take(const std::string& peer, const Rate& rate,
                                         absl::Time now) {
  Bucket& bucket = BucketOf(peer, rate, now);
  bucket.asked = now;
  Fill(bucket, now);
  Fill(all_, now);
  if (bucket.lines < 1 || all_.lines < 1) {
    ++bucket.left_out;
    ++left_out_;
    return std::nullopt;
  }
  bucket.lines -= 1;
  all_.lines -= 1;
  left_out_ -= bucket.left_out;
  return std::exchange(bucket.left_out, 0);
}

std::vector<LineLimiter::LeftOut> LineLimiter::TakeLeftOut(absl::Time now, bool all) {
  std::vector<LeftOut> left_out;
  if (!all && now - looked_ < kLookInterval) return left_out;
  looked_ = now;
  for (auto& [peer, bucket] : buckets_) {
    if (bucket.left_out == 0 || (!all && now - bucket.asked < kQuiet)) continue;
    left_out_ -= bucket.left_out;
    left_out.push_back({.peer = peer, .lines = std::exchange(bucket.left_out, 0)});
  }
  return left_out;
}

}  // namespace capstan
