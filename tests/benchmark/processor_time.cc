#include "tests/benchmark/processor_time.h"

#include <time.h>

namespace capstan::benchmark {
namespace {

double SecondsOf(clockid_t clock) {
  timespec now{};
  if (clock_gettime(clock, &now) != 0) return 0;
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace

double WallSeconds() { return SecondsOf(CLOCK_MONOTONIC); }

double ProcessorSeconds() { return SecondsOf(CLOCK_PROCESS_CPUTIME_ID); }

double ProcessorSecondsOf(pid_t pid) {
  clockid_t clock{};
  return clock_getcpuclockid(pid, &clock) == 0 ? SecondsOf(clock) : 0;
}

}  // namespace capstan::benchmark
