#include "server/store/sparse/rows/admission_filter.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/random/philox.h"
#include "common/status/status_macros.h"

namespace capstan::server {
namespace {

constexpr uint64_t kHashStream = 0x46494C544552;

}  // namespace

int64_t AdmissionFilter::BytesFor(int64_t keys) {
  return (keys * kBytesPerKey + kLineBytes - 1) / kLineBytes * kLineBytes;
}

absl::StatusOr<AdmissionFilter> AdmissionFilter::Make(int64_t keys) {
  AdmissionFilter filter(BytesFor(keys) / kLineBytes);
  CAPSTAN_ASSIGN_OR_RETURN(
      filter.region_, PageRegion::Map(static_cast<size_t>(filter.bytes()), PageRegion::kHugePage));
  return filter;
}

uint64_t AdmissionFilter::HashOf(uint64_t key) { return MixKey(key, kHashStream); }

bool AdmissionFilter::IsNthPush(uint64_t key, int n) {
  const uint64_t hash = HashOf(key);
  Line& line = const_cast<Line&>(LineOf(hash));
  std::array<uint8_t*, kParts> mine;
  for (size_t i = 0; i < kParts; ++i) {
    constexpr uint64_t kPartMask = (1 << kPartBits) - 1;
    const size_t at = (i << kPartBits) + ((hash >> (i * kPartBits)) & kPartMask);
    mine[i] = &line.counters[at];
  }
  const uint8_t before = std::min({*mine[0], *mine[1], *mine[2], *mine[3]});
  if (before + 1 >= n) return true;
  for (uint8_t* const counter : mine) {
    if (*counter != before) continue;
    ++*counter;
    if (before == 0) ++used_;
  }
  if (used_ > used_max()) Age();
  return false;
}

void AdmissionFilter::Age() {
  do {
    for (uint8_t& counter : all()) counter >>= 1;
    CountUsed();
  } while (used_ > used_max() / 2);
}

void AdmissionFilter::CountUsed() {
  used_ = std::count_if(all().begin(), all().end(), [](uint8_t counter) { return counter > 0; });
}

absl::Status AdmissionFilter::Restore(absl::string_view counters) {
  if (counters.size() != all().size()) {
    return absl::DataLossError(absl::StrCat("an admission filter of ", counters.size(),
                                            " bytes: expected ", all().size()));
  }
  std::memcpy(all().data(), counters.data(), counters.size());
  CountUsed();
  return absl::OkStatus();
}

}  // namespace capstan::server
