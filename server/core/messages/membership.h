// Membership: the workers that a job's consistency rule counts, as the scheduler last reported
// them.
//
// Pure data. Thread safety: values.
#ifndef CAPSTAN_SERVER_CORE_MESSAGES_MEMBERSHIP_H_
#define CAPSTAN_SERVER_CORE_MESSAGES_MEMBERSHIP_H_

#include <cstdint>
#include <vector>

#include "common/types/ids.h"

namespace capstan::server {

struct Member {
  Rank rank;
  Incarnation incarnation;  // Lower ones of this rank are fenced off.
  bool active = false;      // False: alive and without work; no rule waits for it.
  // The count of iterations that are taken as finished when this member becomes active after it was
  // inactive, absent or of another incarnation.
  Iteration start_iteration;
  friend bool operator==(const Member&, const Member&) = default;
};

struct Membership {
  Generation generation;  // 0: none known yet.
  // Ordered by rank, each at most once. An unlisted rank is dead or not started.
  std::vector<Member> members;
  Incarnation incarnation_floor = {};  // Incarnations below it are fenced off, whatever their rank.
  double learning_rate_factor = 1;     // For the updates that follow, in (0, 1].
  int64_t clock_seconds = 0;           // How long the job has trained, if rows have a time to live.
  friend bool operator==(const Membership&, const Membership&) = default;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_CORE_MESSAGES_MEMBERSHIP_H_
