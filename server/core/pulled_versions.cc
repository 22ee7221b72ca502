#include "server/core/pulled_versions.h"

#include <algorithm>

namespace capstan::server {

void PulledVersions::Remember(Rank rank, Incarnation incarnation, Iteration iteration,
                              Version version, Actions& actions) {
  Life& life =
      lives_.try_emplace(rank, Life{.incarnation = incarnation, .pulls = {}}).first->second;
  if (incarnation < life.incarnation) return;
  // The version is held first, because it may be that of a pull which is dropped below.
  Hold(version, actions);
  const bool older_life = life.incarnation < incarnation;
  life.incarnation = incarnation;
  DropIf(
      life, [&](const Pull& pull) { return older_life || pull.iteration == iteration; }, actions);
  life.pulls.push_back({.iteration = iteration, .version = version});
  if (life.pulls.size() <= kPullsMax) return;
  Drop(life.pulls.front().version, actions);
  life.pulls.erase(life.pulls.begin());
}

std::optional<Version> PulledVersions::ComputedWith(Rank rank, Incarnation incarnation,
                                                    Iteration iteration) const {
  const auto life = lives_.find(rank);
  if (life == lives_.end() || life->second.incarnation != incarnation) return std::nullopt;
  for (const Pull& pull : life->second.pulls) {
    if (pull.iteration == iteration) return pull.version;
  }
  return std::nullopt;
}

void PulledVersions::Forget(Rank rank, Iteration iteration, Actions& actions) {
  const auto life = lives_.find(rank);
  if (life == lives_.end()) return;
  DropIf(
      life->second, [&](const Pull& pull) { return pull.iteration <= iteration; }, actions);
}

void PulledVersions::SetMembership(const Membership& membership, Actions& actions) {
  for (auto it = lives_.begin(); it != lives_.end();) {
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
    it = lives_.erase(it);
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
void PulledVersions::DropIf(Life& life, Unwanted unwanted, Actions& actions) {
  std::erase_if(life.pulls, [&](const Pull& pull) {
    if (!unwanted(pull)) return false;
    Drop(pull.version, actions);
    return true;
  });
}

}  // namespace capstan::server
