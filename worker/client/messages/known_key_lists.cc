#include "worker/client/messages/known_key_lists.h"

namespace capstan::worker {
namespace {

constexpr int64_t kOverheadBytes = 160;  // The server's bytes per list beside its keys.

// The name of the shard's keys. Null: the keys have no name, or the shard has no keys.
const KeyListName* NameOf(const SendMessage::Shard& shard, const AllTableKeys& keys) {
  const auto table = static_cast<size_t>(shard.key.table.value());
  if (table >= keys.size() || keys[table].batch == nullptr) return nullptr;
  const std::vector<KeyListName>& names = keys[table].batch->names;
  const auto bucket = static_cast<size_t>(shard.elements.begin);
  return bucket < names.size() ? &names[bucket] : nullptr;
}

}  // namespace

int64_t KnownKeyLists::BytesOf(const Id& id) {
  return id.second.count * static_cast<int64_t>(sizeof(uint64_t)) + kOverheadBytes;
}

KeyForm KnownKeyLists::FormOf(const SendMessage& message, const ShardKey& shard,
                              const KeyListName* name) {
  if (name == nullptr || name->count < keys_min_ || message.request.snapshot) {
    return KeyForm::kKeys;
  }
  const auto known = known_.find({shard, *name});
  if (known != known_.end()) {
    order_.splice(order_.begin(), order_, known->second);
    return KeyForm::kName;
  }
  return message.request.kind == OpKind::kPull ? KeyForm::kKeysAndName : KeyForm::kKeys;
}

std::vector<KeyForm> KnownKeyLists::Forms(const SendMessage& message, const AllTableKeys& keys) {
  std::vector<KeyForm> forms;
  for (const SendMessage::Shard& shard : message.shards) {
    forms.push_back(FormOf(message, shard.key, NameOf(shard, keys)));
  }
  return forms;
}

void KnownKeyLists::Answered(const SendMessage& message, const AllTableKeys& keys,
                             absl::Span<const KeyForm> forms) {
  for (size_t i = 0; i < forms.size(); ++i) {
    if (forms[i] != KeyForm::kKeysAndName) continue;
    const SendMessage::Shard& shard = message.shards[i];
    const Id id{shard.key, *NameOf(shard, keys)};
    if (known_.contains(id) || BytesOf(id) > bytes_max_) continue;
    order_.push_front(id);
    known_[id] = order_.begin();
    bytes_ += BytesOf(id);
    while (bytes_ > bytes_max_) {
      bytes_ -= BytesOf(order_.back());
      known_.erase(order_.back());
      order_.pop_back();
    }
  }
}

void KnownKeyLists::Forget(const SendMessage& message, const AllTableKeys& keys,
                           absl::Span<const KeyForm> forms) {
  bool believed = false;
  for (size_t i = 0; i < forms.size() && !believed; ++i) {
    const SendMessage::Shard& shard = message.shards[i];
    believed = forms[i] == KeyForm::kName && known_.contains({shard.key, *NameOf(shard, keys)});
  }
  if (!believed) return;
  known_.clear();
  order_.clear();
  bytes_ = 0;
  bytes_max_ /= 2;
}

}  // namespace capstan::worker
