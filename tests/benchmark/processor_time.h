// Seconds of processor time and of wall time, as the benchmarks count them.
//
// Thread safety: pure functions of the system's clocks.
#ifndef CAPSTAN_TESTS_BENCHMARK_PROCESSOR_TIME_H_
#define CAPSTAN_TESTS_BENCHMARK_PROCESSOR_TIME_H_

#include <sys/types.h>

namespace capstan::benchmark {

// Seconds of a steady clock, from some origin.
double WallSeconds();
// Seconds of all threads of this process since its start.
double ProcessorSeconds();
// Seconds of all threads of process `pid` since its start; 0 if there is no such process.
double ProcessorSecondsOf(pid_t pid);

}  // namespace capstan::benchmark

#endif  // CAPSTAN_TESTS_BENCHMARK_PROCESSOR_TIME_H_
