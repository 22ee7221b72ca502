#include "scheduler/core/placement/job_queue.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace capstan::scheduler {
namespace {

std::string Count(int count, const char* noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

const char* IsAre(int count) { return count == 1 ? " is " : " are "; }

// Returns "4 workers", "4 workers with 1 GPU each" or "1 GPU".
std::string Wanted(int workers, const DeviceNeed& need) {
  if (need.kind != DeviceNeed::Kind::kGpu) return Count(workers, "worker");
  const std::string gpus =
      need.index >= 0 ? absl::StrCat("GPU ", need.index) : Count(need.gpus, "GPU");
  return workers == 1 ? gpus : absl::StrCat(Count(workers, "worker"), " with ", gpus, " each");
}

std::string WhyNoWorkers(int workers, const DeviceNeed& need, const Supply& supply) {
  const std::string needs = absl::StrCat("needs ", Wanted(workers, need));
  if (need.kind != DeviceNeed::Kind::kGpu || supply.slots > 0) {
    return absl::StrCat(needs, ", ", supply.slots_free, IsAre(supply.slots_free), "free of ",
                        supply.slots, " alive");
  }
  const char* it = need.index >= 0 ? "it" : need.gpus == 1 ? "one" : "as many";
  return absl::StrCat(needs, "; no live worker has ", it, supply.no_gpus.empty() ? "" : ": ",
                      supply.no_gpus);
}

std::string WhyNoServers(int servers, const std::vector<PluginRule>& rules, const Supply& supply) {
  std::string why = absl::StrCat("needs ", Count(servers, "server"));
  if (!rules.empty()) absl::StrAppend(&why, " with ", TextOf(rules));
  absl::StrAppend(&why, ", ", supply.servers, IsAre(supply.servers), "alive");
  if (supply.without_rules.empty()) return why;
  return absl::StrCat(why, " (without it: ", supply.without_rules,
                      "; start them with --rule-plugin)");
}

}  // namespace

absl::Status JobQueue::Push(const JobId& job, int workers, int servers, const JobNeed& need) {
  if (waiting_.size() >= kPendingMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat(waiting_.size(), " jobs wait already; stop one or submit later"));
  }
  waiting_.push_back({job, workers, std::max(servers, 1), need});
  return absl::OkStatus();
}

void JobQueue::Remove(const JobId& job) {
  std::erase_if(waiting_, [&job](const Waiting& waiting) { return waiting.job == job; });
}

std::vector<JobNeed> JobQueue::Needs() const {
  std::vector<JobNeed> needs;
  for (const Waiting& waiting : waiting_) {
    if (std::find(needs.begin(), needs.end(), waiting.need) == needs.end()) {
      needs.push_back(waiting.need);
    }
  }
  return needs;
}

const Supply& JobQueue::SupplyOf(const Waiting& waiting, const Supplies& supplies) {
  return std::find_if(supplies.begin(), supplies.end(),
                      [&waiting](const auto& each) { return each.first == waiting.need; })
      ->second;
}

bool JobQueue::IsPassedOver(const Waiting& waiting, const Supplies& supplies) {
  const Supply& supply = SupplyOf(waiting, supplies);
  return waiting.workers > supply.slots || waiting.servers > supply.servers;
}

std::optional<JobId> JobQueue::Startable(const Supplies& supplies) const {
  for (const Waiting& waiting : waiting_) {
    if (IsPassedOver(waiting, supplies)) continue;
    const Supply& supply = SupplyOf(waiting, supplies);
    const bool fits = waiting.workers <= supply.slots_free && waiting.servers <= supply.servers;
    return fits ? std::optional<JobId>(waiting.job) : std::nullopt;
  }
  return std::nullopt;
}

std::vector<JobId> JobQueue::Jobs() const {
  std::vector<JobId> jobs;
  for (const Waiting& waiting : waiting_) jobs.push_back(waiting.job);
  return jobs;
}

std::string JobQueue::WhyWaiting(const JobId& job, const Supplies& supplies) const {
  std::vector<JobId> ahead;
  auto it = waiting_.begin();
  for (; it->job != job; ++it) {
    if (!IsPassedOver(*it, supplies)) ahead.push_back(it->job);
  }
  if (!ahead.empty() && !IsPassedOver(*it, supplies)) {
    return absl::StrCat("waits behind ", ahead.front(),
                        ahead.size() > 1 ? absl::StrCat(" and ", ahead.size() - 1, " more") : "");
  }
  const std::string missing = WhatIsMissing(*it, supplies);
  return missing.empty() ? "is about to start" : missing;
}

std::string JobQueue::WhatIsMissing(const Waiting& waiting, const Supplies& supplies) {
  const Supply& supply = SupplyOf(waiting, supplies);
  std::string missing;
  if (waiting.workers > supply.slots_free) {
    absl::StrAppend(&missing, WhyNoWorkers(waiting.workers, waiting.need.device, supply));
  }
  if (waiting.servers > supply.servers) {
    absl::StrAppend(&missing, missing.empty() ? "" : "; ",
                    WhyNoServers(waiting.servers, waiting.need.rules, supply));
  }
  if (IsPassedOver(waiting, supplies)) {
    absl::StrAppend(&missing, "; waits until more join, and jobs behind it go on");
  }
  return missing;
}

std::string JobQueue::WhyTooSmall(const JobId& job, const Supplies& supplies) const {
  for (const Waiting& waiting : waiting_) {
    if (waiting.job == job && IsPassedOver(waiting, supplies)) {
      return WhatIsMissing(waiting, supplies);
    }
  }
  return "";
}

}  // namespace capstan::scheduler
