#include "server/core/pulled_versions.h"

#include <algorithm>

namespace capstan::server {

void PulledVersions::Remember(Rank rank, Incarnation incarnation, Iteration iteration,
                              Version version, Actions& actions) {
  RankPulls& known =
      by_rank_.try_emplace(rank, RankPulls{.incarnation = incarnation, .pulls = {}}).first->second;
  if (incarnation < known.incarnation) return;
  // The version is held first, because it may be that of a pull which is dropped below.
  Hold(version, actions);
  const bool older = known.incarnation < incarnation;
  known.incarnation = incarnation;
  DropIf(
      known, [&](const Pull& pull) { return older || pull.iteration == iteration; }, actions);
  known.pulls.push_back({.iteration = iteration, .version = version});
  if (known.pulls.size() <= kPullsMax) return;
  Drop(known.pulls.front().version, actions);
  known.pulls.erase(known.pulls.begin());
}

std::optional<Version> PulledVersions::ComputedWith(Rank rank, Incarnation incarnation,
                                                    Iteration iteration) const {
  const auto known = by_rank_.find(rank);
  if (known == by_rank_.end() || known->second.incarnation != incarnation) return std::nullopt;
  for (const Pull& pull : known->second.pulls) {
    if (pull.iteration == iteration) return pull.version;
  }
  return std::nullopt;
}

void PulledVersions::Forget(Rank rank, Iteration iteration, Actions& actions) {
  const auto known = by_rank_.find(rank);
  if (known == by_rank_.end()) return;
  DropIf(
      known->second, [&](const Pull& pull) { return pull.iteration <= iteration; }, actions);
}

void PulledVersions::SetMembership(const Membership& membership, Actions& actions) {
  for (auto it = by_rank_.begin(); it != by_rank_.end();) {
    const auto member =
        std::lower_bound(membership.members.begin(), membership.members.end(), it->first,
                         [](const Member& listed, Rank rank) { return listed.rank < rank; });
    if (member != membership.members.end() && member->rank == it->first &&
        member->incarnation == it->second.incarnation) {
      ++it;
      continue;
    }
    DropIf(
        it->second, [](const Pull&) { return true; }, actions);
    it = by_rank_.erase(it);
  }
}

void PulledVersions::Hold(Version version, Actions& actions) {
  if (++holders_[version] == 1 && values_ == Values::kKept) actions.push_back(KeepValues{version});
}

void PulledVersions::Drop(Version version, Actions& actions) {
  const auto it = holders_.find(version);
  if (--it->second > 0) return;
  holders_.erase(it);
  if (values_ == Values::kKept) actions.push_back(ForgetValues{version});
}

template <typename Unwanted>
void PulledVersions::DropIf(RankPulls& known, Unwanted unwanted, Actions& actions) {
  std::erase_if(known.pulls, [&](const Pull& pull) {
    if (!unwanted(pull)) return false;
    Drop(pull.version, actions);
    return true;
  });
}

}  // namespace capstan::server
