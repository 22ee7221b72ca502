#include "worker/client/call_queue.h"

#include <algorithm>
#include <utility>

#include "common/shared_memory/shared_values.h"

namespace capstan::worker {
namespace {

constexpr int64_t kSharedBytesMin = 16 << 10;  // Smaller messages gain nothing.

// The room in shared memory for values of these sizes; 0: they do not go there.
int64_t SharedBytes(const std::vector<int64_t>& sizes) {
  const int64_t bytes = RoomBytes(sizes);
  return bytes >= kSharedBytesMin ? bytes : 0;
}

}  // namespace

bool CallQueue::AddPull(const std::shared_ptr<ClientCall>& call) {
  calls_.insert(call);
  if (!pulls_.empty() || MustWait(*call)) {
    pulls_.push_back(call);
    return false;
  }
  Place(*call);
  return true;
}

void CallQueue::AddPush(std::shared_ptr<ClientCall> call) {
  calls_.insert(call);
  const auto turn = [](const ClientCall& each) {
    return std::pair(each.message.op, each.message.shards.front().key);
  };
  const auto place =
      std::upper_bound(pushes_.begin(), pushes_.end(), call,
                       [&turn](const auto& a, const auto& b) { return turn(*a) < turn(*b); });
  pushes_.insert(place, std::move(call));
}

void CallQueue::Remove(const std::shared_ptr<ClientCall>& call) {
  if (call->pushing > 0) pushing_[call->transport] -= call->pushing;
  calls_.erase(call);
}

bool CallQueue::MustWait(const ClientCall& call) const {
  if (call.is_push()) {
    if (!push_bytes_max_.has_value()) return false;
    const auto pushing = pushing_.find(call.transport);
    if (pushing != pushing_.end() && pushing->second > 0 &&
        pushing->second + RoomBytes(call.sizes) > *push_bytes_max_) {
      return true;
    }
  }
  return call.transport->MustWaitForRoom(call.message.request.kind, SharedBytes(call.sizes));
}

void CallQueue::Place(ClientCall& call) {
  if (call.is_push()) {
    call.pushing = RoomBytes(call.sizes);
    pushing_[call.transport] += call.pushing;
  }
  ++messages_;
  call.in_shared_memory = call.transfer->TakeRoom(SharedBytes(call.sizes));
  if (call.in_shared_memory) ++shared_messages_;
}

bool CallQueue::MayTake(const Calls& calls) const {
  if (calls.empty()) return false;
  const ClientCall& first = *calls.front();
  return !IsExpected(first) || !MustWait(first);
}

std::shared_ptr<ClientCall> CallQueue::TakeFirst(Calls* calls) {
  std::shared_ptr<ClientCall> call = std::move(calls->front());
  calls->pop_front();
  if (IsExpected(*call)) {
    if (calls != &placed_) Place(*call);
    return call;
  }
  Remove(call);  // The routing table has changed meanwhile.
  return nullptr;
}

CallQueue::Task CallQueue::Take() {
  Task task;
  if (!questions_.empty()) {
    task.question = std::move(questions_.front());
    questions_.pop_front();
  } else if (!offers_.empty()) {
    task.offer = offers_.front();
    offers_.pop_front();
  } else if (!placed_.empty()) {
    task.call = TakeFirst(&placed_);
  } else {
    task.call = TakeFirst(MayTake(pushes_) ? &pushes_ : &pulls_);
  }
  return task;
}

std::vector<std::shared_ptr<ClientCall>> CallQueue::TakeSmallPushes() {
  std::vector<std::shared_ptr<ClientCall>> taken;
  int64_t bytes = 0;
  for (const std::shared_ptr<ClientCall>& call : pushes_) bytes += RoomBytes(call->sizes);
  if (bytes > kSmallBytesMax) return taken;
  while (MayTake(pushes_)) {
    if (std::shared_ptr<ClientCall> call = TakeFirst(&pushes_)) taken.push_back(std::move(call));
  }
  return taken;
}

void CallQueue::Clear() {
  for (Calls* const calls : {&placed_, &pushes_, &pulls_}) {
    for (const std::shared_ptr<ClientCall>& call : *calls) Remove(call);
    calls->clear();
  }
  questions_.clear();
  offers_.clear();
}

}  // namespace capstan::worker
