// KeyLists: lists of keys that workers have named in pulls, to be meant by their names later.
//
// A list lives as long as the worker's incarnation that named it, or until it makes room for newer
// ones: of each worker those that were used longest ago leave. All of a job together take at most
// Limits::bytes, in equal parts for the workers, and no more than the job's memory budget lets them
// have; what does not fit is not kept. Losing a list costs a round trip, never more.
//
// Thread safety: thread-safe.
// Invariants: (1) of each rank, lists are of one incarnation. (2) no worker has more than its part.
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
  // Accounts for so many bytes from now on. An error: then nothing changes.
  using Account = std::function<absl::Status(int64_t bytes)>;

  // `account` may be empty: no limit but this one's.
  KeyLists(const Limits& limits, Account account) : limits_(limits), account_(std::move(account)) {}

  // Null: not kept, or no longer. Counted as used, or unknown.
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
  using Order = std::list<List>;  // The one used last first.
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
  void Settle()
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);  // Tells the account that there is less than before.

  const Limits limits_;
  const Account account_;
  mutable absl::Mutex mutex_;
  std::map<Rank, Worker> workers_ ABSL_GUARDED_BY(mutex_);
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  v1::KeyListCounts counts_ ABSL_GUARDED_BY(mutex_);  // But what is kept.
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_ENGINE_KEY_LISTS_H_
