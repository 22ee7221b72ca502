// WaitingCalls: the calls of one job that have begun and not ended, and what each still waits for:
// answers of shards (parts of a pull), and versions or positions to be committed (holds).
//
//   Begin --> OPEN --Seal--> WAITING --last part taken, last hold released--> ended, kOk
//                               '------End---------------------------------> ended, its status
//
// Bookkeeping only: decides nothing and calls nobody; ended calls are returned, to be notified
// later.
// Thread safety: thread-safe. A call that is open ends by End alone.
#ifndef CAPSTAN_SERVER_ENGINE_WAITING_CALLS_H_
#define CAPSTAN_SERVER_ENGINE_WAITING_CALLS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/types/ids.h"
#include "common/wire/tensor_message.h"
#include "server/core/messages/messages.h"
#include "server/store/gradient.h"

namespace capstan::server {

// Calls that have ended: to be notified once no lock is held.
using EndedCalls = std::vector<std::pair<std::function<void(const absl::Status&)>, absl::Status>>;

class WaitingCalls {
 public:
  using CallId = StrongInt<struct CallIdTag, uint64_t>;
  using Done = std::function<void(const absl::Status&)>;

  struct Part {  // The part of a call for one shard, with the place of its answer.
    CallId call;
    ShardKey key;
    PullAnswer* answer;
    int index;
    RowKeys keys;  // The requested keys of a sparse shard.
  };
  // A pull that waits in a shard's core.
  using PendingPull = std::pair<PullToken, ShardKey>;

  CallId Begin(Done done);
  // The call may end from now on. True: it has not ended yet.
  bool Seal(CallId call, EndedCalls* ended);
  // The call does not end before it is sealed once more. REQUIRES: Has(call).
  void Open(CallId call);
  bool empty() const;
  bool Has(CallId call) const;

  // A shard's answer is missing. REQUIRES: the part's call is open.
  PullToken AddPart(const Part& part);
  // The answer is there. REQUIRES: the token was given out, its call has not ended.
  Part TakePart(PullToken token, EndedCalls* ended);
  int64_t key_bytes() const;  // Bytes of the keys that all parts request.
  // The part with this token, before it is taken.
  Part PartOf(PullToken token) const;

  // The call does not end before the shard has committed that much. REQUIRES: Has(call).
  void HoldForVersion(CallId call, const ShardKey& key, Version version);
  void HoldForPosition(CallId call, const ShardKey& key, Position position);
  // The shard has committed that much.
  void Release(const ShardKey& key, Version version, Position position, EndedCalls* ended);

  // Ends a call whatever it waits for; returns its pulls, which are to be cancelled in the cores.
  // Unknown ids are ignored.
  std::vector<PendingPull> End(CallId call, const absl::Status& status, EndedCalls* ended);
  std::vector<CallId> WaitingFor(const ShardKey& key) const;  // Ascending.
  std::vector<CallId> All() const;

 private:
  struct Hold {
    ShardKey key;
    int64_t value = 0;  // Version or position.
    CallId call;
    friend auto operator<=>(const Hold&, const Hold&) = default;
  };
  using Holds = std::set<Hold>;
  struct Call {
    Done done;
    int missing = 1;  // Parts and holds; 1 more while it is open.
    std::vector<PullToken> parts;
    std::vector<Hold> versions;
    std::vector<Hold> positions;
  };

  void ErasePart(std::map<PullToken, Part>::iterator part) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Add(const Hold& hold, Holds* holds, std::vector<Hold>* of_call)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReleaseUpTo(const ShardKey& key, int64_t value, Holds* holds, EndedCalls* ended)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // True: it has not ended yet.
  bool CountDown(CallId call, EndedCalls* ended) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  std::map<CallId, Call> calls_ ABSL_GUARDED_BY(mutex_);
  std::map<PullToken, Part> parts_ ABSL_GUARDED_BY(mutex_);
  int64_t key_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  Holds versions_ ABSL_GUARDED_BY(mutex_);
  Holds positions_ ABSL_GUARDED_BY(mutex_);
  PullToken next_token_ ABSL_GUARDED_BY(mutex_){1};
  CallId next_call_ ABSL_GUARDED_BY(mutex_){1};
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_ENGINE_WAITING_CALLS_H_
