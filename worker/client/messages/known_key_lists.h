// KnownKeyLists: tracks which key lists a server presumably keeps, so that the client sends a
// list's name instead of its keys.
//
//   forms = known.Forms(message, keys)        each shard's form: keys, keys and name, or name alone
//   known.Answered(message, keys, forms)      the server has accepted the message
//   known.Forget(message, keys, forms)        the server did not know a name in the message: all
//                                             lists are forgotten, and bytes_max() is halved
//
// A pull sends keys with their name; the push of its rows, a repeated pull and a later batch of the
// same keys send the name alone. Thread safety: thread-compatible.
// Invariant: the lists that the server presumably keeps take at most bytes_max() there.
#ifndef CAPSTAN_WORKER_CLIENT_MESSAGES_KNOWN_KEY_LISTS_H_
#define CAPSTAN_WORKER_CLIENT_MESSAGES_KNOWN_KEY_LISTS_H_

#include <cstdint>
#include <list>
#include <map>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/sparse/key_list_name.h"
#include "common/types/ids.h"
#include "worker/client/messages/message_codec.h"
#include "worker/core/push_pull_session.h"

namespace capstan::worker {

class KnownKeyLists {
 public:
  struct Options {
    int64_t bytes_max = 32 << 20;  // A server of a few workers keeps this much for each.
    int64_t keys_min = 16;         // Shorter lists are sent as keys: a name saves nothing.
  };
  explicit KnownKeyLists(const Options& options)
      : keys_min_(options.keys_min), bytes_max_(options.bytes_max) {}

  // Decides how the keys of each of the message's shards are sent. Lists without names
  // (KeyBatch::names), snapshots and dense tables get kKeys.
  std::vector<KeyForm> Forms(const SendMessage& message, const AllTableKeys& keys);
  // The server has accepted the message and keeps the lists that came with a name. REQUIRES: Forms
  // returned `forms` for this message.
  void Answered(const SendMessage& message, const AllTableKeys& keys,
                absl::Span<const KeyForm> forms);
  // The server did not know a name in the message. Does nothing if the names of this message are
  // forgotten already: many such messages may have been under way. REQUIRES: as Answered.
  void Forget(const SendMessage& message, const AllTableKeys& keys,
              absl::Span<const KeyForm> forms);

  int64_t bytes_max() const { return bytes_max_; }

 private:
  using Id = std::pair<ShardKey, KeyListName>;
  using Order = std::list<Id>;  // Begins with the most recently used list.

  static int64_t BytesOf(const Id& id);
  KeyForm FormOf(const SendMessage& message, const ShardKey& shard, const KeyListName* name);

  const int64_t keys_min_;
  int64_t bytes_max_;
  int64_t bytes_ = 0;
  Order order_;
  std::map<Id, Order::iterator> known_;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_CLIENT_MESSAGES_KNOWN_KEY_LISTS_H_
