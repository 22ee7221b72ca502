// The input and output of a shard's core: heads of pushes and pulls in, ordered actions out.
//
// Payloads stay with the shell: the core names gradients by id and callers by token. Pure data.
// Thread safety: values.
#ifndef CAPSTAN_SERVER_CORE_MESSAGES_MESSAGES_H_
#define CAPSTAN_SERVER_CORE_MESSAGES_MESSAGES_H_

#include <cstdint>
#include <variant>
#include <vector>

#include "common/time/instant.h"
#include "common/types/ids.h"
#include "server/core/messages/shard_record.h"

namespace capstan::server {

// The shell's name for a call that awaits an answer; chosen by the shell, unique per shard while
// pending.
using PushToken = StrongInt<struct PushTokenTag, uint64_t>;
using PullToken = StrongInt<struct PullTokenTag, uint64_t>;

// A gradient that the shell keeps for a shard. Ids are issued by the shard's core and never reused.
using GradientId = StrongInt<struct GradientIdTag, uint64_t>;
// The payload of the push being handled; valid only in the actions of that push.
inline constexpr GradientId kIncomingGradient{0};
// The payload that CorrectGradient makes of the incoming one; valid only in the actions of that
// push.
inline constexpr GradientId kCorrectedGradient{~uint64_t{0}};

// Largest iteration that is accepted, far beyond any job: counts derived from it do not overflow.
inline constexpr Iteration kIterationMax{int64_t{1} << 62};
// Largest sequence number that is accepted: counts derived from it do not overflow.
inline constexpr Sequence kSequenceMax{uint64_t{1} << 62};

struct PushHead {
  PushToken token;
  Rank rank;
  Incarnation incarnation;
  Iteration iteration;  // 0 to kIterationMax, as in PullHead.
  // BSP: [slot_begin, slot_end) is a node of the summation tree. SSP, ASP: both 0.
  int32_t slot_begin = 0;
  int32_t slot_end = 0;
  Sequence sequence;            // 1 to kSequenceMax.
  Sequence sequence_low_water;  // All below it are answered. At most `sequence`.
  friend bool operator==(const PushHead&, const PushHead&) = default;
};

// The rank of a reader that is no worker; it may only read snapshots.
inline constexpr Rank kReaderRank{-1};

struct PullHead {
  PullToken token;
  Rank rank;
  Incarnation incarnation;
  Iteration iteration;       // About to be computed.
  bool snapshot = false;     // Read the current values without waiting; `iteration` is ignored.
  Version held_version{-1};  // The values are left out if this is the version to be read. -1: none.
  Instant deadline;          // Answered kNotReady when it passes.
  friend bool operator==(const PullHead&, const PullHead&) = default;
};

// kLate: its iteration was applied without this push (BSP with backups), which is dropped.
enum class PushOutcome { kRecorded, kDuplicate, kLate };
enum class PullOutcome { kValues, kUnchanged, kNotReady, kPast };
// Which of a shard's two readable buffers a pull is answered from.
enum class ReadFrom { kNothing, kCurrent, kPrevious };

// The workers or slots that a pull waits for, and the iteration that they must finish first.
struct WaitingOn {
  Iteration iteration;
  std::vector<Rank> ranks;    // SSP: workers that have not finished it. Ascending.
  std::vector<SlotId> slots;  // BSP: slots that have not arrived. Ascending.
  friend bool operator==(const WaitingOn&, const WaitingOn&) = default;
};

// ------------------------------------------------------ actions, to be carried out in order

struct KeepGradient {  // Copy the incoming payload into a buffer of its own.
  GradientId as;
};
struct AddGradient {  // into += from, element by element; `from` is gone unless it is the payload.
  GradientId into;
  GradientId from;
};
struct DropGradient {
  GradientId gradient;
};
// kCorrectedGradient = the incoming payload, corrected by what has happened to the values since the
// worker pulled them (server/optimizer/late_gradient.h).
struct CorrectGradient {
  Version computed_with;            // The version of the values that the worker pulled.
  int64_t divisor = 1;              // >= 1.
  float delay_compensation = 0.0f;  // Above 0: the values of `computed_with` have been kept.
};
// The current values, which have this version, are needed until ForgetValues names it.
struct KeepValues {
  Version version;
};
struct ForgetValues {
  Version version;
};
struct ReleasePrevious {};  // Nobody may read the previous version any more; its buffer is free.
// A change that replicas and logs must have. It comes before the actions that carry it out, while
// the gradient still exists. `gradient` is kIncomingGradient if the record has none.
struct MakeRecord {
  ShardRecord record;
  GradientId gradient;
  Version version_after;  // The shard's version once the record is applied.
};
// values = update number `step` (from 0) of values with the gradient, which is gone afterwards.
struct ApplyGradient {
  GradientId gradient;
  int64_t step = 0;
  double learning_rate_factor = 1;  // The schedule's rate is multiplied by it.
  bool keep_previous = false;  // The values before the update stay readable as ReadFrom::kPrevious.
  Version evict_before;        // Rows whose last update made a lower version leave. 0: none.
};
struct ReplyPush {
  PushToken token;
  PushOutcome outcome = PushOutcome::kRecorded;
  Version version;  // After the push.
  // The reply may leave once this version is safe (BSP: the one that contains the whole iteration).
  Version rests_on;
};
// The shell reads the values at this point of the order: a later action may change them.
struct ReplyPull {
  PullToken token;
  PullOutcome outcome = PullOutcome::kValues;
  ReadFrom read_from = ReadFrom::kNothing;  // kValues only.
  Version version;  // The values' version; kPast: the oldest readable; kNotReady: the current.
  // SSP, ASP: the caller's iteration minus the count of iterations that every active worker has
  // finished.
  int64_t staleness = 0;
  // The membership that lists those workers. 0: none is known yet.
  Generation membership;
  WaitingOn waiting_on;  // kNotReady only.
  // The reply may leave once this version is safe; 0 for kNotReady.
  Version rests_on() const { return outcome == PullOutcome::kNotReady ? Version(0) : version; }
};

using Action =
    std::variant<KeepGradient, AddGradient, DropGradient, CorrectGradient, KeepValues, ForgetValues,
                 ReleasePrevious, MakeRecord, ApplyGradient, ReplyPush, ReplyPull>;
using Actions = std::vector<Action>;

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_CORE_MESSAGES_MESSAGES_H_
