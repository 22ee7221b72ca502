#include "scheduler/core/nodes/membership.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/planted/planted_bug.h"
#include "common/status/status_macros.h"
#include "common/time/duration_text.h"

namespace capstan::scheduler {
namespace {

constexpr size_t kNameBytesMax = 64;

absl::Status ValidateInfo(const NodeInfo& info) {
  const bool well_formed = std::all_of(info.name.begin(), info.name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
  });
  if (!well_formed || info.name.size() > kNameBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("name: \"", info.name, "\" is not 1 to ",
                                                   kNameBytesMax,
                                                   " letters, digits, '-', '_' or '.'"));
  }
  if (info.address.empty()) {
    return absl::InvalidArgumentError(
        "address: empty; expected host:port where peers reach the daemon");
  }
  if (info.role == Role::kWorker && info.task_capacity < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("task_capacity: ", info.task_capacity, "; a worker runs at least 1 task"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::string_view RoleName(Role role) { return role == Role::kServer ? "server" : "worker"; }

Membership::Membership(const Options& options)
    : options_(options), isolation_(options.isolation), limits_(options.registrations) {}

NodeId Membership::FreeName(Role role) const {
  for (int number = 1;; ++number) {
    NodeId name = absl::StrCat(RoleName(role), "-", number);
    if (!nodes_.contains(name)) return name;
  }
}

absl::Status Membership::MayReplace(const Node& holder, const NodeInfo& info, Instant now) const {
  const NodeInfo& held = holder.info;
  if (held.role != info.role) {
    return absl::InvalidArgumentError(absl::StrCat("name: \"", holder.id, "\" is a live ",
                                                   RoleName(held.role), " at ", held.address));
  }
  const bool silent = now >= holder.last_seen + options_.silence;
  const bool unheard = silent || holder.lease_from || holder.broken_since;
  const bool same_identity = !info.identity.empty() && info.identity == held.identity;
  // Two processes cannot listen at one address, so the same address proves that the earlier process
  // is gone. The same identity alone does not, because its disk may be a clone. A broken connection
  // does not either, because a live node cancels its sync to send a newer state (seed 708247811).
  if (same_identity && Planted(PlantedBug::kReplaceHeard)) return absl::OkStatus();
  if (same_identity && (silent || info.address == held.address)) return absl::OkStatus();
  // A node that registers proves that this scheduler can be reached, even if isolation holds.
  if (now >= DeadlineOf(holder)) return absl::OkStatus();
  const std::string who = absl::StrCat(
      "name: \"", holder.id, "\" is held by the ", RoleName(held.role), " at ", held.address,
      " (process ", held.pid, " on ", held.hostname.empty() ? "an unknown host" : held.hostname,
      "), registered ", DurationText(now - holder.registered), " ago and last heard ",
      DurationText(now - holder.last_seen), " ago");
  if (unheard) return absl::AbortedError(absl::StrCat(who, "; it may be dead: ask again"));
  return absl::AlreadyExistsError(absl::StrCat(
      who,
      same_identity ? "; this one has a copy of its folder, or is its successor and asks too early"
                    : "",
      "; stop that one, or start this one under another name"));
}

absl::StatusOr<NodeId> Membership::Register(const NodeInfo& info, Incarnation incarnation,
                                            Instant now, Events& events) {
  CAPSTAN_RETURN_IF_ERROR(ValidateInfo(info));
  const NodeId id = info.name.empty() ? FreeName(info.role) : info.name;
  const Node* earlier = Find(id);
  const bool draining = earlier != nullptr && earlier->draining;
  const bool replaces = earlier != nullptr && earlier->alive;
  if (replaces) CAPSTAN_RETURN_IF_ERROR(MayReplace(*earlier, info, now));
  CAPSTAN_RETURN_IF_ERROR(limits_.Count(id, /*known=*/earlier != nullptr, now));
  if (replaces) {
    events.push_back(NodeDied{id, earlier->incarnation,
                              absl::StrCat("replaced by a new process at ", info.address),
                              earlier->last_seen});
  }
  Node node{.id = id, .info = info, .incarnation = incarnation};
  node.draining = draining;
  node.heard = true;
  node.registered = now;
  node.last_seen = now;
  node.info.name = id;
  node.info.stored.clear();
  nodes_.insert_or_assign(id, node);
  events.push_back(NodeJoined{id, info.role, info.address, incarnation});
  return id;
}

absl::Status Membership::Renew(const NodeId& id, Incarnation incarnation, bool leaving,
                               Instant now) {
  const auto it = nodes_.find(id);
  if (it == nodes_.end()) {
    return absl::NotFoundError(absl::StrCat("node \"", id, "\" is not registered"));
  }
  Node& node = it->second;
  if (node.incarnation != incarnation) {
    return absl::AbortedError(absl::StrCat(id, ": incarnation ", incarnation.value(),
                                           " was replaced by ", node.incarnation.value()));
  }
  if (!node.alive) {
    return absl::AbortedError(absl::StrCat(id, ": the lease of incarnation ", incarnation.value(),
                                           " ran out; register again"));
  }
  if (node.lease_from || now >= node.last_seen + options_.silence) node.returned = now;
  node.heard = true;
  node.last_seen = std::max(node.last_seen, now);
  node.leaving = node.leaving || leaving;
  node.lease_from.reset();
  node.broken_since.reset();
  return absl::OkStatus();
}

void Membership::Broken(const NodeId& id, Incarnation incarnation, Instant now) {
  const auto it = nodes_.find(id);
  if (it == nodes_.end() || it->second.incarnation != incarnation || !it->second.alive) return;
  Node& node = it->second;
  const bool returns = node.returned && now < *node.returned + options_.rejoin;
  if (isolated() || node.lease_from || returns) return;
  if (!node.broken_since) node.broken_since = now;
}

absl::Status Membership::SetDraining(const NodeId& id, bool draining) {
  const auto it = nodes_.find(id);
  if (it == nodes_.end()) {
    return absl::NotFoundError(absl::StrCat("there is no node \"", id, "\""));
  }
  it->second.draining = draining;
  return absl::OkStatus();
}

Instant Membership::DeadlineOf(const Node& node) const {
  const Instant lease_end =
      std::max(node.last_seen, node.lease_from.value_or(node.last_seen)) + options_.lease;
  if (!node.broken_since) return lease_end;
  return std::min(lease_end, *node.broken_since + options_.broken_limit);
}

void Membership::NoteIsolation(Instant now, Events& events) {
  Isolation::Nodes nodes;
  for (const auto& [id, node] : nodes_) {
    if (!node.alive) continue;
    ++nodes.alive;
    // Restored() has set last_seen without a message from the node.
    const bool unheard = isolated() && node.lease_from.has_value();
    if (unheard || now >= node.last_seen + options_.silence) ++nodes.silent;
    if (now >= std::min(DeadlineOf(node), node.last_seen + options_.lease)) nodes.expired = true;
  }
  observed_ = now;
  const bool held = isolation_.holds();
  const Instant since = held ? isolation_.since() : now;
  switch (isolation_.Observe(nodes, now)) {
    case Isolation::Change::kNone:
      return;
    case Isolation::Change::kBegan:
      events.push_back(SchedulerIsolated{nodes.silent, nodes.alive});
      return;
    case Isolation::Change::kEnded:
      RenewSilent(now);
      events.push_back(IsolationEnded{now - since, nodes.silent});
      return;
    case Isolation::Change::kGivenUp:
      events.push_back(IsolationEnded{now - since, nodes.silent});
      return;
  }
}

void Membership::RenewSilent(Instant now) {
  for (auto& [id, node] : nodes_) {
    if (!node.alive || now < node.last_seen + options_.silence) continue;
    node.lease_from = now + options_.rejoin;
    node.broken_since.reset();
  }
}

void Membership::Tick(Instant now, Events& events) {
  NoteIsolation(now, events);
  if (isolated()) return;
  for (auto it = nodes_.begin(); it != nodes_.end();) {
    Node& node = it->second;
    if (node.alive && now >= DeadlineOf(node)) {
      node.alive = false;
      const std::string silence = DurationText(now - node.last_seen);
      events.push_back(NodeDied{node.id, node.incarnation,
                                absl::StrCat(node.broken_since ? "its connection broke, and " : "",
                                             "no sync for ", silence),
                                node.last_seen});
    }
    it = now >= ForgottenAt(node) ? nodes_.erase(it) : std::next(it);
  }
  ForgetOldestDead();
}

Instant Membership::ForgottenAt(const Node& node) const {
  const bool stays = node.alive || node.draining;
  return stays ? Instant::InfiniteFuture() : node.last_seen + options_.remember;
}

void Membership::ForgetOldestDead() {
  std::vector<std::pair<Instant, NodeId>> dead;
  for (const auto& [id, node] : nodes_) {
    if (!node.alive && !node.draining) dead.emplace_back(node.last_seen, id);
  }
  if (std::ssize(dead) <= options_.dead_max) return;
  std::sort(dead.begin(), dead.end());
  dead.resize(dead.size() - static_cast<size_t>(options_.dead_max));
  for (const auto& [last_seen, id] : dead) nodes_.erase(id);
}

Instant Membership::NextDeadline() const {
  if (isolated()) return observed_ + options_.silence;
  Instant next = Instant::InfiniteFuture();
  for (const auto& [id, node] : nodes_) {
    next = std::min(next, node.alive ? DeadlineOf(node) : ForgottenAt(node));
    // At that time the scheduler no longer waits for the node to come back.
    if (node.alive && !node.heard && node.lease_from && *node.lease_from > observed_) {
      next = std::min(next, *node.lease_from);
    }
    // After a restart no node is dead yet, but isolation is checked at the end of each lease.
    const Instant lease_end = node.last_seen + options_.lease;
    if (node.alive && lease_end > observed_) next = std::min(next, lease_end);
  }
  return next;
}

void Membership::Restored(Instant now, absl::Duration rejoin) {
  for (auto& [id, node] : nodes_) {
    if (node.alive) {
      node.last_seen = now;
      node.lease_from = now + rejoin;
    }
    node.broken_since.reset();
  }
}

const Node* Membership::Find(const NodeId& id) const {
  const auto it = nodes_.find(id);
  return it == nodes_.end() ? nullptr : &it->second;
}

std::vector<const Node*> Membership::All() const {
  std::vector<const Node*> all;
  for (const auto& [id, node] : nodes_) all.push_back(&node);
  std::stable_sort(all.begin(), all.end(),
                   [](const Node* a, const Node* b) { return a->info.role < b->info.role; });
  return all;
}

std::vector<const Node*> Membership::Available(Role role) const {
  std::vector<const Node*> available;
  for (const auto& [id, node] : nodes_) {
    if (node.alive && node.heard && !node.closing() && node.info.role == role) {
      available.push_back(&node);
    }
  }
  return available;
}

bool Membership::MayReturn(Instant now) const {
  return std::any_of(nodes_.begin(), nodes_.end(), [now](const auto& entry) {
    const Node& node = entry.second;
    return node.alive && !node.heard && node.lease_from && now < *node.lease_from;
  });
}

}  // namespace capstan::scheduler
