#include "server/engine/waiting_calls.h"

#include <limits>

namespace capstan::server {
namespace {

int64_t KeyBytes(const WaitingCalls::Part& part) {
  return part.keys == nullptr ? 0 : static_cast<int64_t>(part.keys->size() * sizeof(uint64_t));
}

}  // namespace

WaitingCalls::CallId WaitingCalls::Begin(Done done) {
  absl::MutexLock lock(&mutex_);
  const CallId id = next_call_;
  ++next_call_;
  calls_[id].done = std::move(done);
  return id;
}

bool WaitingCalls::Seal(CallId call, EndedCalls* ended) {
  absl::MutexLock lock(&mutex_);
  return CountDown(call, ended);
}

void WaitingCalls::Open(CallId call) {
  absl::MutexLock lock(&mutex_);
  ++calls_.at(call).missing;
}

bool WaitingCalls::empty() const {
  absl::MutexLock lock(&mutex_);
  return calls_.empty();
}

bool WaitingCalls::Has(CallId call) const {
  absl::MutexLock lock(&mutex_);
  return calls_.contains(call);
}

int64_t WaitingCalls::key_bytes() const {
  absl::MutexLock lock(&mutex_);
  return key_bytes_;
}

WaitingCalls::Part WaitingCalls::PartOf(PullToken token) const {
  absl::MutexLock lock(&mutex_);
  return parts_.at(token);
}

bool WaitingCalls::CountDown(CallId id, EndedCalls* ended) {
  const auto it = calls_.find(id);
  if (--it->second.missing > 0) return true;
  ended->emplace_back(std::move(it->second.done), absl::OkStatus());
  calls_.erase(it);
  return false;
}

PullToken WaitingCalls::AddPart(const Part& part) {
  absl::MutexLock lock(&mutex_);
  const PullToken token = next_token_;
  ++next_token_;
  Call& entry = calls_.at(part.call);
  ++entry.missing;
  entry.parts.push_back(token);
  parts_.insert({token, part});
  key_bytes_ += KeyBytes(part);
  return token;
}

void WaitingCalls::ErasePart(std::map<PullToken, Part>::iterator part) {
  key_bytes_ -= KeyBytes(part->second);
  parts_.erase(part);
}

WaitingCalls::Part WaitingCalls::TakePart(PullToken token, EndedCalls* ended) {
  absl::MutexLock lock(&mutex_);
  const auto it = parts_.find(token);
  const Part part = it->second;
  ErasePart(it);
  CountDown(part.call, ended);
  return part;
}

void WaitingCalls::HoldForVersion(CallId call, const ShardKey& key, Version version) {
  absl::MutexLock lock(&mutex_);
  Add({.key = key, .value = version.value(), .call = call}, &versions_, &calls_.at(call).versions);
}

void WaitingCalls::HoldForPosition(CallId call, const ShardKey& key, Position position) {
  absl::MutexLock lock(&mutex_);
  Add({.key = key, .value = position.value(), .call = call}, &positions_,
      &calls_.at(call).positions);
}

void WaitingCalls::Add(const Hold& hold, Holds* holds, std::vector<Hold>* of_call) {
  if (!holds->insert(hold).second) return;
  of_call->push_back(hold);
  ++calls_.at(hold.call).missing;
}

void WaitingCalls::Release(const ShardKey& key, Version version, Position position,
                           EndedCalls* ended) {
  absl::MutexLock lock(&mutex_);
  ReleaseUpTo(key, version.value(), &versions_, ended);
  ReleaseUpTo(key, position.value(), &positions_, ended);
}

void WaitingCalls::ReleaseUpTo(const ShardKey& key, int64_t value, Holds* holds,
                               EndedCalls* ended) {
  const Hold lowest{.key = key, .value = std::numeric_limits<int64_t>::min(), .call = CallId(0)};
  for (auto it = holds->lower_bound(lowest);
       it != holds->end() && it->key == key && it->value <= value;) {
    const CallId call = it->call;
    it = holds->erase(it);
    CountDown(call, ended);
  }
}

std::vector<WaitingCalls::PendingPull> WaitingCalls::End(CallId call, const absl::Status& status,
                                                         EndedCalls* ended) {
  absl::MutexLock lock(&mutex_);
  std::vector<PendingPull> pulls;
  const auto it = calls_.find(call);
  if (it == calls_.end()) return pulls;
  for (const PullToken token : it->second.parts) {
    const auto part = parts_.find(token);
    if (part == parts_.end()) continue;  // It was answered already.
    pulls.emplace_back(token, part->second.key);
    ErasePart(part);
  }
  for (const Hold& hold : it->second.versions) versions_.erase(hold);
  for (const Hold& hold : it->second.positions) positions_.erase(hold);
  ended->emplace_back(std::move(it->second.done), status);
  calls_.erase(it);
  return pulls;
}

std::vector<WaitingCalls::CallId> WaitingCalls::WaitingFor(const ShardKey& key) const {
  absl::MutexLock lock(&mutex_);
  std::set<CallId> calls;
  for (const auto& [token, part] : parts_) {
    if (part.key == key) calls.insert(part.call);
  }
  const Hold lowest{.key = key, .value = std::numeric_limits<int64_t>::min(), .call = CallId(0)};
  for (const Holds* holds : {&versions_, &positions_}) {
    for (auto it = holds->lower_bound(lowest); it != holds->end() && it->key == key; ++it) {
      calls.insert(it->call);
    }
  }
  return {calls.begin(), calls.end()};
}

std::vector<WaitingCalls::CallId> WaitingCalls::All() const {
  absl::MutexLock lock(&mutex_);
  std::vector<CallId> all;
  for (const auto& [id, call] : calls_) all.push_back(id);
  return all;
}

}  // namespace capstan::server
