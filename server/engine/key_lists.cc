#include "server/engine/key_lists.h"

#include <algorithm>

namespace capstan::server {

int64_t KeyLists::BytesOf(const RowKeys& keys) {
  return static_cast<int64_t>(keys->size() * sizeof(uint64_t)) + kOverheadBytes;
}

int64_t KeyLists::PartBytes() const {
  return limits_.bytes / std::max(limits_.parts, static_cast<int>(workers_.size()));
}

RowKeys KeyLists::Find(Rank rank, Incarnation incarnation, const ShardKey& shard,
                       const KeyListName& name) {
  absl::MutexLock lock(&mutex_);
  RowKeys keys = Look(rank, incarnation, shard, name);
  if (keys != nullptr) {
    counts_.set_used(counts_.used() + 1);
  } else {
    counts_.set_unknown(counts_.unknown() + 1);
  }
  return keys;
}

int64_t KeyLists::bytes() const {
  absl::MutexLock lock(&mutex_);
  return bytes_;
}

v1::KeyListCounts KeyLists::counts() const {
  absl::MutexLock lock(&mutex_);
  v1::KeyListCounts counts = counts_;
  for (const auto& [rank, worker] : workers_) {
    counts.set_kept(counts.kept() + static_cast<int64_t>(worker.lists.size()));
  }
  counts.set_bytes(bytes_);
  return counts;
}

RowKeys KeyLists::Look(Rank rank, Incarnation incarnation, const ShardKey& shard,
                       const KeyListName& name) {
  const auto worker = workers_.find(rank);
  if (worker == workers_.end() || worker->second.incarnation != incarnation) return nullptr;
  const auto list = worker->second.lists.find({shard, name});
  if (list == worker->second.lists.end()) return nullptr;
  Order& order = worker->second.order;
  order.splice(order.begin(), order, list->second);
  return list->second->keys;
}

void KeyLists::Keep(Rank rank, Incarnation incarnation, const ShardKey& shard,
                    const KeyListName& name, const RowKeys& keys) {
  absl::MutexLock lock(&mutex_);
  counts_.set_named(counts_.named() + 1);
  Worker& worker = workers_[rank];
  if (incarnation < worker.incarnation) return;
  if (incarnation > worker.incarnation) DropAll(worker);
  worker.incarnation = incarnation;
  if (worker.lists.contains({shard, name})) return;
  const int64_t part = PartBytes();
  const int64_t bytes = BytesOf(keys);
  const bool fits = bytes <= part;
  for (auto& [each, other] : workers_) {  // A new worker makes the parts of others smaller.
    const int64_t room = part - (fits && each == rank ? bytes : 0);
    while (!other.order.empty() && other.bytes > room) DropLast(other);
  }
  if (!fits || (account_ && !account_(bytes_ + bytes).ok())) return Settle();
  worker.order.push_front({.id = {shard, name}, .keys = keys});
  worker.lists[{shard, name}] = worker.order.begin();
  worker.bytes += bytes;
  bytes_ += bytes;
}

void KeyLists::SetMembership(const Membership& membership) {
  absl::MutexLock lock(&mutex_);
  for (auto& [rank, worker] : workers_) {
    const bool listed = std::any_of(
        membership.members.begin(), membership.members.end(), [&](const Member& member) {
          return member.rank == rank && member.incarnation == worker.incarnation;
        });
    if (!listed) DropAll(worker);
  }
  std::erase_if(workers_, [](const auto& entry) { return entry.second.order.empty(); });
  Settle();
}

void KeyLists::DropLast(Worker& worker) {
  const List& last = worker.order.back();
  worker.bytes -= BytesOf(last.keys);
  bytes_ -= BytesOf(last.keys);
  worker.lists.erase(last.id);
  worker.order.pop_back();
}

void KeyLists::DropAll(Worker& worker) {
  while (!worker.order.empty()) DropLast(worker);
}

void KeyLists::Settle() {
  if (account_) account_(bytes_).IgnoreError();
}

}  // namespace capstan::server
