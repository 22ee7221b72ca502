// AdmissionFilter: a blocked counting Bloom filter, which counts in memory of a fixed size how
// often keys that have no row were pushed.
//
//   key --hash--> a cache line of 64 counters of 8 bits, four parts of 16
//                 [ . . a . ][ a . . . ][ . . . a ][ . a . . ]     count = the least of its four
//
// A push raises only those of the four that are the least (conservative update: Estan, Varghese,
// "New directions in traffic measurement", SIGCOMM 2002), so that a count is too high only if all
// four are shared. When two of five counters are in use, all are halved, at least once and until
// only one of five is (as TinyLFU ages: Einziger, Friedman, Manes, TOS 2017): keys that were pushed
// seldom or long ago are forgotten, and the filter never fills up.
//
// Its counters are a function of the pushes and their order. Thread safety: thread-compatible.
#ifndef CAPSTAN_SERVER_STORE_SPARSE_ROWS_ADMISSION_FILTER_H_
#define CAPSTAN_SERVER_STORE_SPARSE_ROWS_ADMISSION_FILTER_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/store/sparse/rows/page_region.h"

namespace capstan::server {

class AdmissionFilter {
 public:
  static constexpr int kCountMax = 255;  // Largest number of pushes that a row may need.
  static constexpr int64_t kBytesPerKey = 8;

  // Bytes of a filter for so many keys at a time; keys >= 1.
  static int64_t BytesFor(int64_t keys);

  // Errors: kResourceExhausted  no memory.
  static absl::StatusOr<AdmissionFilter> Make(int64_t keys);

  void Prefetch(uint64_t key) const { __builtin_prefetch(&LineOf(HashOf(key))); }

  // Counts a push of `key`, unless it is its `n`-th or a later one: then returns true.
  // REQUIRES: 1 <= n <= kCountMax.
  bool IsNthPush(uint64_t key, int n);

  // All counters, to be saved.
  absl::string_view counters() const { return {region_.data(), static_cast<size_t>(bytes())}; }
  // Errors: kDataLoss  they are those of a filter of another size; says both sizes.
  absl::Status Restore(absl::string_view counters);

  int64_t bytes() const { return lines_ * kLineBytes; }

 private:
  static constexpr int64_t kLineBytes = 64;
  static constexpr size_t kParts = 4;  // A key has a counter in each.
  static constexpr size_t kPartBits = 4;
  struct alignas(kLineBytes) Line {
    std::array<uint8_t, kLineBytes> counters;
  };

  explicit AdmissionFilter(int64_t lines) : lines_(lines) {}

  static uint64_t HashOf(uint64_t key);
  const Line& LineOf(uint64_t hash) const {
    const auto product = static_cast<unsigned __int128>(hash) * static_cast<uint64_t>(lines_);
    return reinterpret_cast<const Line*>(region_.data())[static_cast<uint64_t>(product >> 64)];
  }
  absl::Span<uint8_t> all() {
    return {reinterpret_cast<uint8_t*>(region_.data()), static_cast<size_t>(bytes())};
  }
  int64_t used_max() const { return bytes() * 2 / 5; }
  void CountUsed();
  void Age();

  int64_t lines_;
  int64_t used_ = 0;  // Counters above 0.
  PageRegion region_;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORE_SPARSE_ROWS_ADMISSION_FILTER_H_
