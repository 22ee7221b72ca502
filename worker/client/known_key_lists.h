// KnownKeyLists: which lists of keys a server is believed to keep, so that they need not be sent.
//
//   forms = known.Forms(message, keys)        of each shard: the keys, with or without their name,
//                                             or the name alone
//   known.Answered(message, keys, forms)      the server has taken the message
//   known.Forget(message, keys, forms)        it did not know a name that the message has: whatever
//                                             is believed may be wrong, and less is from now on
//
// A pull brings keys with their name; the push of its rows, a pull that is asked again and a later
// batch of the same keys name them. Thread safety: thread-compatible.
// Invariant: the lists believed to be kept take at most bytes_max() there.
#ifndef CAPSTAN_WORKER_CLIENT_KNOWN_KEY_LISTS_H_
#define CAPSTAN_WORKER_CLIENT_KNOWN_KEY_LISTS_H_

#include <cstdint>
#include <list>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/types/span.h"
#include "common/sparse/key_list_name.h"
#include "common/types/ids.h"
#include "worker/client/message_codec.h"
#include "worker/core/push_pull_session.h"

namespace capstan::worker {

class KnownKeyLists {
 public:
  struct Options {
    int64_t bytes_max = 32 << 20;  // As a server keeps of each of a few workers.
    int64_t keys_min = 16;         // Of a list: names of shorter ones gain nothing.
  };
  explicit KnownKeyLists(const Options& options)
      : keys_min_(options.keys_min), bytes_max_(options.bytes_max) {}

  // How the keys of each of the message's shards are to be sent. Lists that have no names
  // (KeyBatch::names), snapshots and dense tables: as they are.
  std::vector<KeyForm> Forms(const SendMessage& message, const AllTableKeys& keys);
  // REQUIRES: `forms` is what Forms has said of the message.
  void Answered(const SendMessage& message, const AllTableKeys& keys,
                absl::Span<const KeyForm> forms);
  // Likewise. Does nothing where none of the names has been believed since they were forgotten:
  // many messages may have been under way.
  void Forget(const SendMessage& message, const AllTableKeys& keys,
              absl::Span<const KeyForm> forms);

  int64_t bytes_max() const { return bytes_max_; }

 private:
  using Id = std::pair<ShardKey, KeyListName>;
  using Order = std::list<Id>;  // The one used last first.

  static int64_t BytesOf(const Id& id);
  KeyForm FormOf(const SendMessage& message, const ShardKey& shard, const KeyListName* name);

  const int64_t keys_min_;
  int64_t bytes_max_;
  int64_t bytes_ = 0;
  Order order_;
  absl::btree_map<Id, Order::iterator> known_;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_CLIENT_KNOWN_KEY_LISTS_H_
