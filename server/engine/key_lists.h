// KeyLists: lists of keys that workers have sent and named in pulls, so that later messages can
// name the list instead.
//
// A list is kept as long as the worker's incarnation that named it, or until it makes room for
// newer ones: each worker's least recently used lists leave first. All lists of a job together take
// at most Limits::bytes, in equal parts for the workers, and no more than the job's memory budget
// lets them have; what does not fit is not kept. Losing a list costs a round trip, never more.
//
// Thread safety: thread-safe.
// Invariants: (1) all lists of a rank are of one incarnation. (2) no worker has more than its part.
#ifndef CAPSTAN_SERVER_ENGINE_KEY_LISTS_H_
#define CAPSTAN_SERVER_ENGINE_KEY_LISTS_H_

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/sparse/key_list_name.h"
#include "common/types/ids.h"
#include "proto/parameter_server.pb.h"
#include "server/core/messages/membership.h"
#include "server/store/gradient.h"

namespace capstan::server {

class KeyLists {
 public:
  struct Limits {
    int64_t bytes = 128 << 20;  // Bytes of keys, with kOverheadBytes for each list.
    int parts = 4;              // Each worker has one part, or less if there are more workers.
  };
  static constexpr int64_t kOverheadBytes = 160;
  // Sets the charge to `bytes`. On an error nothing changes.
  using Account = std::function<absl::Status(int64_t bytes)>;

  // `account` may be empty: no limit but this one's.
  KeyLists(const Limits& limits, Account account) : limits_(limits), account_(std::move(account)) {}

  // Null: the list is not kept, or no longer. Counts the list as used or unknown (counts()).
  RowKeys Find(Rank rank, Incarnation incarnation, const ShardKey& shard, const KeyListName& name);

  // Keeps the list if there is room. An incarnation that is not the rank's newest keeps nothing.
  void Keep(Rank rank, Incarnation incarnation, const ShardKey& shard, const KeyListName& name,
            const RowKeys& keys);

  // Drops the lists of incarnations that it does not list.
  void SetMembership(const Membership& membership);

  int64_t bytes() const;
  v1::KeyListCounts counts() const;  // Since it was made.

 private:
  using Id = std::pair<ShardKey, KeyListName>;
  struct List {
    Id id;
    RowKeys keys;
  };
  using Order = std::list<List>;  // The most recently used first.
  struct Worker {
    Incarnation incarnation;
    Order order;
    std::map<Id, Order::iterator> lists;
    int64_t bytes = 0;
  };

  static int64_t BytesOf(const RowKeys& keys);
  RowKeys Look(Rank rank, Incarnation incarnation, const ShardKey& shard, const KeyListName& name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t PartBytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropLast(Worker& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropAll(Worker& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Settle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);  // Lowers the charge to bytes_.

  const Limits limits_;
  const Account account_;
  mutable absl::Mutex mutex_;
  std::map<Rank, Worker> workers_ ABSL_GUARDED_BY(mutex_);
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  v1::KeyListCounts counts_ ABSL_GUARDED_BY(mutex_);  // Without what is kept.
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_ENGINE_KEY_LISTS_H_
