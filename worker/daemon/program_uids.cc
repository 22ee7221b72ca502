#include "worker/daemon/program_uids.h"

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status/status_macros.h"

namespace capstan::worker {
namespace {

constexpr uint32_t kUidMax = 4'294'967'293;  // The next two mean "nobody" and "no change".

}  // namespace

absl::StatusOr<UidRange> ParseUidRange(absl::string_view text) {
  const std::vector<absl::string_view> ends = absl::StrSplit(text, '-');
  uint32_t first = 0;
  uint32_t last = 0;
  if (ends.size() == 2 && absl::SimpleAtoi(ends[0], &first) && absl::SimpleAtoi(ends[1], &last) &&
      first >= 1 && first <= last && last <= kUidMax) {
    return UidRange{first, last};
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", text, "\": expected FIRST-LAST, numbers of users from 1 to ", kUidMax));
}

ProgramUids::ProgramUids(const UidRange& range, uint64_t begin) : range_(range), next_(begin) {}

absl::StatusOr<uid_t> ProgramUids::TaskStarts(
    const JobId& job, const std::function<absl::StatusOr<bool>(uid_t)>& is_free) {
  if (const auto found = holders_.find(job); found != holders_.end()) {
    ++found->second.tasks;
    return found->second.uid;
  }
  std::set<uid_t> taken;
  for (const auto& [other, holder] : holders_) taken.insert(holder.uid);
  const uint64_t count = uint64_t{range_.last} - range_.first + 1;
  for (uint64_t tried = 0; tried < count; ++tried) {
    const auto uid = static_cast<uid_t>(range_.first + next_++ % count);
    if (taken.contains(uid)) continue;
    CAPSTAN_ASSIGN_OR_RETURN(const bool free, is_free(uid));
    if (!free) continue;
    holders_[job] = {uid, 1};
    return uid;
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("all users from ", range_.first, " to ", range_.last, " run something already"));
}

bool ProgramUids::TaskEnds(const JobId& job) { return --holders_.at(job).tasks == 0; }

void ProgramUids::GiveBack(const JobId& job) {
  const auto found = holders_.find(job);
  if (found != holders_.end() && found->second.tasks == 0) holders_.erase(found);
}

}  // namespace capstan::worker
