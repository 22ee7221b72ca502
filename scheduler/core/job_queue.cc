#include "scheduler/core/job_queue.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace capstan::scheduler {
namespace {

std::string Count(int count, const char* noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

const char* IsAre(int count) { return count == 1 ? " is " : " are "; }

}  // namespace

absl::Status JobQueue::Push(const JobId& job, int workers, int servers) {
  if (waiting_.size() >= kPendingMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat(waiting_.size(), " jobs wait already; stop one or submit later"));
  }
  waiting_.push_back({job, workers, std::max(servers, 1)});
  return absl::OkStatus();
}

void JobQueue::Remove(const JobId& job) {
  std::erase_if(waiting_, [&job](const Waiting& waiting) { return waiting.job == job; });
}

std::optional<JobId> JobQueue::Startable(const Supply& supply) const {
  if (waiting_.empty()) return std::nullopt;
  const Waiting& head = waiting_.front();
  if (head.workers > supply.slots_free || head.servers > supply.servers) return std::nullopt;
  return head.job;
}

std::vector<JobId> JobQueue::Jobs() const {
  std::vector<JobId> jobs;
  for (const Waiting& waiting : waiting_) jobs.push_back(waiting.job);
  return jobs;
}

std::string JobQueue::WhyWaiting(const JobId& job, const Supply& supply) const {
  const Waiting& head = waiting_.front();
  if (head.job != job) {
    const auto it = std::find_if(waiting_.begin(), waiting_.end(),
                                 [&job](const Waiting& waiting) { return waiting.job == job; });
    const auto ahead = it - waiting_.begin();
    return absl::StrCat("waits behind ", head.job,
                        ahead > 1 ? absl::StrCat(" and ", ahead - 1, " more") : "");
  }
  std::string why;
  if (head.workers > supply.slots_free) {
    absl::StrAppend(&why, "needs ", Count(head.workers, "worker"), ", ", supply.slots_free,
                    IsAre(supply.slots_free), "free of ", supply.slots, " alive");
  }
  if (head.servers > supply.servers) {
    absl::StrAppend(&why, why.empty() ? "" : "; ", "needs ", Count(head.servers, "server"), ", ",
                    supply.servers, IsAre(supply.servers), "alive");
  }
  return why.empty() ? "is about to start" : why;
}

}  // namespace capstan::scheduler
