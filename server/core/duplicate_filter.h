// DuplicateFilter: remembers, for one shard, which pushes of which incarnation have been applied.
//
// It has for each rank: the lowest incarnation that is still accepted, a low-water mark below which
// every sequence of that incarnation counts as applied, and the applied ones in a bounded window
// above it. The mark rises over sequences that were applied without gaps, and to the low-water mark
// that the client sends, so a client that pushes in order needs no window at all.
//
//   (unknown) --push or membership of incarnation i--> i --higher incarnation j--> j, no marks
//                                                      |
//              no longer a member: dead                +----> FENCED up to i, no marks
//
// Below the floor of a membership all incarnations are fenced, those of unknown ranks too.
//
// Thread safety: thread-compatible.
// Invariants: (1) a rank's accepted incarnation never decreases. (2) at most kSequenceWindow marks
// a rank.
#ifndef CAPSTAN_SERVER_CORE_DUPLICATE_FILTER_H_
#define CAPSTAN_SERVER_CORE_DUPLICATE_FILTER_H_

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/types/ids.h"
#include "server/core/messages/membership.h"
#include "server/core/messages/messages.h"
#include "server/core/messages/shard_record.h"

namespace capstan::server {

class DuplicateFilter {
 public:
  // Sequences that one worker may have beyond its low-water mark.
  static constexpr uint64_t kSequenceWindow = 1024;

  // Errors: kAborted  a newer incarnation of the rank is known, or this one is dead, or it is below
  //         the floor.
  absl::Status CheckIncarnation(Rank rank, Incarnation incarnation) const;

  // Whether the newest membership that listed the rank listed this incarnation of it.
  bool Lists(Rank rank, Incarnation incarnation) const;

  // From now on lower incarnations of the rank are refused. REQUIRES: CheckIncarnation is OK.
  void Admit(Rank rank, Incarnation incarnation);

  // Whether the push has been applied (kDuplicate) or is new (kRecorded). Changes nothing.
  // Errors: kAborted            as CheckIncarnation.
  //         kInvalidArgument    a sequence out of range, or a low-water mark above it.
  //         kResourceExhausted  the sequence is kSequenceWindow or more beyond the low-water mark.
  absl::StatusOr<PushOutcome> Check(const PushHead& push) const;

  // Marks the push as applied and forgets what the client's low-water mark covers. A push of an
  // incarnation that is fenced off (only a wrong log can contain one) marks nothing.
  void Record(Rank rank, Incarnation incarnation, Sequence sequence, Sequence low_water);

  // Forgets and fences off listed incarnations that are no longer members; fences incarnations
  // below the listed ones, and all below the membership's floor. Another incarnation that pushed
  // before any membership listed it stays.
  void SetMembership(const Membership& membership);

  Incarnation floor() const { return floor_; }
  std::vector<PushMarks> Save() const;  // Ordered by rank.
  void Restore(Incarnation floor, const std::vector<PushMarks>& all);

  int64_t marks() const;  // Applied sequences held in windows, over all ranks.

 private:
  struct Window {
    Incarnation incarnation;     // The lowest that is accepted.
    bool listed = false;         // A membership has named this incarnation.
    Sequence low_water{1};       // Every sequence below it counts as applied.
    std::set<Sequence> applied;  // At or above low_water.
  };
  static void RaiseLowWater(Window& window, Sequence low_water);
  static Window Fresh(Incarnation incarnation);

  Incarnation floor_;
  std::map<Rank, Window> windows_;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_CORE_DUPLICATE_FILTER_H_
