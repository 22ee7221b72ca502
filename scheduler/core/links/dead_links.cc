#include "scheduler/core/links/dead_links.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace capstan::scheduler {

void DeadLinks::OnReport(Rank rank, const NodeId& worker, absl::Span<const NodeId> silent,
                         Instant now) {
  if (silent.empty()) return OnTaskEnded(rank);
  std::map<NodeId, Instant> servers;
  const auto before = silences_.find(rank);
  for (const NodeId& server : silent) {
    Instant since = now;
    if (before != silences_.end() && before->second.second.contains(server)) {
      since = before->second.second.at(server);
    }
    servers[server] = since;
  }
  silences_[rank] = {worker, std::move(servers)};
}

void DeadLinks::OnNodeDied(const NodeId& node) {
  std::erase_if(silences_, [&node](const auto& entry) { return entry.second.first == node; });
  for (auto& [rank, silence] : silences_) silence.second.erase(node);
  std::erase_if(judged_, [&node](const auto& entry) {
    return entry.first.worker == node || entry.first.server == node;
  });
}

void DeadLinks::RestartLimits(Instant now) {
  for (auto& [rank, silence] : silences_) {
    for (auto& [server, since] : silence.second) since = now;
  }
}

std::vector<DeadLinks::Silence> DeadLinks::Overdue(Instant now) const {
  std::vector<Silence> overdue;
  for (const auto& [rank, silence] : silences_) {
    for (const auto& [server, since] : silence.second) {
      const Link link{silence.first, server};
      if (now >= since + options_.limit) overdue.push_back({rank, link, since});
    }
  }
  return overdue;
}

bool DeadLinks::IsSilent(Rank rank, const NodeId& server) const {
  const auto found = silences_.find(rank);
  return found != silences_.end() && found->second.second.contains(server);
}

void DeadLinks::Excuse(Rank rank, const NodeId& server, Instant now) {
  if (IsSilent(rank, server)) silences_.at(rank).second.at(server) = now;
}

void DeadLinks::Judge(const Link& link, Avoid avoid, Instant now) {
  judged_[link] = {avoid, now + options_.memory};
}

void DeadLinks::Expire(Instant now) {
  std::erase_if(judged_, [now](const auto& entry) { return now >= entry.second.until; });
}

bool DeadLinks::ForgetAvoidedServers() {
  const auto is_silent = [this](const Link& link) {
    return std::any_of(silences_.begin(), silences_.end(), [&link](const auto& entry) {
      const auto& [worker, servers] = entry.second;
      return worker == link.worker && servers.contains(link.server);
    });
  };
  return std::erase_if(judged_, [&](const auto& entry) {
           return entry.second.avoid != Avoid::kWorker && !is_silent(entry.first);
         }) > 0;
}

std::optional<DeadLinks::Avoid> DeadLinks::JudgementOf(const Link& link) const {
  const auto found = judged_.find(link);
  return found == judged_.end() ? std::nullopt : std::make_optional(found->second.avoid);
}

NodeId DeadLinks::StrandedFrom(Rank rank) const {
  const auto found = silences_.find(rank);
  if (found == silences_.end()) return {};
  const auto& [worker, servers] = found->second;
  for (const auto& [server, since] : servers) {
    const std::optional<Avoid> avoid = JudgementOf({worker, server});
    if (avoid && avoid != Avoid::kServer) return server;
  }
  return {};
}

std::set<NodeId> DeadLinks::AvoidedWorkers() const {
  std::set<NodeId> workers;
  for (const auto& [link, judgement] : judged_) {
    if (judgement.avoid != Avoid::kServer) workers.insert(link.worker);
  }
  return workers;
}

std::set<NodeId> DeadLinks::AvoidedServers() const {
  std::set<NodeId> servers;
  for (const auto& [link, judgement] : judged_) {
    if (judgement.avoid != Avoid::kWorker) servers.insert(link.server);
  }
  return servers;
}

std::string DeadLinks::Describe() const {
  std::vector<std::string> dead;
  for (const auto& [link, judgement] : judged_) {
    dead.push_back(absl::StrCat(link.worker, " cannot reach ", link.server));
  }
  return absl::StrJoin(dead, ", ");
}

Instant DeadLinks::NextDeadline() const {
  Instant next = Instant::InfiniteFuture();
  for (const auto& [rank, silence] : silences_) {
    for (const auto& [server, since] : silence.second) {
      next = std::min(next, since + options_.limit);
    }
  }
  for (const auto& [link, judgement] : judged_) next = std::min(next, judgement.until);
  return next;
}

}  // namespace capstan::scheduler
