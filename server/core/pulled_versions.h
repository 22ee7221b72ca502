// PulledVersions: which version of a shard each worker's gradients are computed with, so that late
// ones can be corrected (SSP, ASP).
//
// Each worker's last pulls are remembered until their gradient comes. They are no part of the
// shard's state: records carry corrected gradients, so that replicas and logs need nothing of this,
// and a shard that was made from a snapshot corrects nothing before a worker's next pull.
//
//      pull answered ---> REMEMBERED ---gradient of its iteration, or of a later one---> forgotten
//      (KeepValues)            '--another incarnation of the rank, or none listed any more--'
//                              '------kPullsMax later pulls----------------------------'
//
// Thread safety: thread-compatible.
// Invariants: (1) at most kPullsMax pulls of a rank are remembered, all of one incarnation.
//             (2) with Values::kKept, exactly the versions of remembered pulls have had a
//                 KeepValues and no ForgetValues after it.
#ifndef CAPSTAN_SERVER_CORE_PULLED_VERSIONS_H_
#define CAPSTAN_SERVER_CORE_PULLED_VERSIONS_H_

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "common/types/ids.h"
#include "server/core/messages/membership.h"
#include "server/core/messages/messages.h"

namespace capstan::server {

class PulledVersions {
 public:
  // A worker computes with one while the next is on its way.
  static constexpr size_t kPullsMax = 2;

  // Whether the values of those versions are kept, or only the version numbers.
  enum class Values { kNotNeeded, kKept };
  explicit PulledVersions(Values values) : values_(values) {}

  // Notes that a pull for `iteration` was answered with `version`, the current one. It replaces a
  // pull for the same iteration: the worker computes with the last answer. An incarnation older
  // than the remembered one is ignored.
  void Remember(Rank rank, Incarnation incarnation, Iteration iteration, Version version,
                Actions& actions);

  // The version that this incarnation's gradient of `iteration` was computed with. None: not known.
  std::optional<Version> ComputedWith(Rank rank, Incarnation incarnation,
                                      Iteration iteration) const;

  // The gradient of `iteration` has been applied: pulls for it and earlier ones are forgotten.
  void Forget(Rank rank, Iteration iteration, Actions& actions);

  // Forgets incarnations that are not listed.
  void SetMembership(const Membership& membership, Actions& actions);

 private:
  struct Pull {
    Iteration iteration;
    Version version;
  };
  struct RankPulls {
    Incarnation incarnation;
    std::vector<Pull> pulls;  // Ordered as they were answered.
  };

  void Hold(Version version, Actions& actions);
  void Drop(Version version, Actions& actions);
  // Drops all pulls of `known` for which `unwanted` returns true.
  template <typename Unwanted>
  void DropIf(RankPulls& known, Unwanted unwanted, Actions& actions);

  Values values_;  // Constant after construction.
  std::map<Rank, RankPulls> by_rank_;
  std::map<Version, int> holders_;  // Pulls of each version.
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_CORE_PULLED_VERSIONS_H_
