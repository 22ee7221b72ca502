#include "common/process/descriptor_limit.h"

#include <sys/resource.h>

#include <algorithm>
#include <limits>

namespace capstan {

int DescriptorLimit() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<int>(
      std::min(limit.rlim_cur, static_cast<rlim_t>(std::numeric_limits<int>::max())));
}

void RaiseDescriptorLimit() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace capstan
