#include "common/net/socket/connection_limits.h"

#include <algorithm>
#include <utility>

namespace capstan {

Instant ConnectionLimits::MayAcceptFrom(Instant now) const {
  if (std::ssize(unproven_) < options_.unproven_max || unproven_.empty()) return now;
  return std::max(now, connections_.at(*unproven_.begin()).since + options_.undisturbed);
}

std::optional<ConnectionLimits::Id> ConnectionLimits::Add(Id id, const std::string& address,
                                                          Instant now) {
  connections_.emplace(id, Connection{.address = address, .since = now});
  unproven_.insert(id);
  Counts& counts = addresses_[address];
  ++counts.all;
  ++counts.unproven;
  std::optional<Id> closed;
  if (counts.all > options_.connections_per_address_max ||
      counts.unproven > options_.unproven_per_address_max) {
    closed = First(&address, id);
  } else if (count() > options_.connections_max || std::ssize(unproven_) > options_.unproven_max) {
    closed = First(nullptr, id);
  }
  if (closed.has_value()) Remove(*closed);
  return closed;
}

void ConnectionLimits::NoteHeard(Id id) { connections_.at(id).heard = true; }

void ConnectionLimits::Prove(Id id) {
  Connection& connection = connections_.at(id);
  connection.proven = true;
  unproven_.erase(id);
  --addresses_.at(connection.address).unproven;
}

void ConnectionLimits::Remove(Id id) {
  const auto connection = connections_.find(id);
  if (connection == connections_.end()) return;
  const auto counts = addresses_.find(connection->second.address);
  --counts->second.all;
  if (!connection->second.proven) --counts->second.unproven;
  if (counts->second.all == 0) addresses_.erase(counts);
  unproven_.erase(id);
  connections_.erase(connection);
}

std::vector<ConnectionLimits::Id> ConnectionLimits::TakeExpired(Instant now) {
  std::vector<Id> expired;
  for (const Id id : unproven_) {
    if (now < connections_.at(id).since + options_.prove_within) break;
    expired.push_back(id);
  }
  for (const Id id : expired) Remove(id);
  return expired;
}

std::optional<ConnectionLimits::Id> ConnectionLimits::TakeUnproven() {
  const std::optional<Id> first = First(nullptr, std::nullopt);
  if (first.has_value()) Remove(*first);
  return first;
}

Instant ConnectionLimits::NextDeadline() const {
  if (unproven_.empty()) return Instant::InfiniteFuture();
  return connections_.at(*unproven_.begin()).since + options_.prove_within;
}

std::optional<ConnectionLimits::Id> ConnectionLimits::First(const std::string* address,
                                                            std::optional<Id> newcomer) const {
  std::optional<Id> oldest;
  for (const Id id : unproven_) {
    const Connection& connection = connections_.at(id);
    if (id == newcomer || (address != nullptr && connection.address != *address)) continue;
    if (!connection.heard) return id;
    if (!oldest.has_value()) oldest = id;
  }
  return oldest.has_value() ? oldest : newcomer;
}

}  // namespace capstan
