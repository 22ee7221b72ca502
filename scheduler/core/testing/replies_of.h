// RepliesOf: the replies of one kind among those of a step.
//
// Thread safety: a function of its argument.
#ifndef CAPSTAN_SCHEDULER_CORE_TESTING_REPLIES_OF_H_
#define CAPSTAN_SCHEDULER_CORE_TESTING_REPLIES_OF_H_

#include <variant>
#include <vector>

#include "scheduler/core/scheduler_core.h"

namespace capstan::scheduler::testing {

template <typename Kind>
std::vector<Kind> RepliesOf(const Actions& actions) {
  std::vector<Kind> found;
  for (const Reply& reply : actions.replies) {
    if (const Kind* kind = std::get_if<Kind>(&reply)) found.push_back(*kind);
  }
  return found;
}

}  // namespace capstan::scheduler::testing

#endif  // CAPSTAN_SCHEDULER_CORE_TESTING_REPLIES_OF_H_
