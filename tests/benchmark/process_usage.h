// Memory and open files of a process, from /proc.
//
// Thread safety: pure functions of the system's state.
#ifndef CAPSTAN_TESTS_BENCHMARK_PROCESS_USAGE_H_
#define CAPSTAN_TESTS_BENCHMARK_PROCESS_USAGE_H_

#include <sys/types.h>

#include <cstdint>

namespace capstan::benchmark {

int64_t ResidentBytesOf(pid_t pid);  // 0 if there is no such process.
int OpenFilesOf(pid_t pid);          // 0 if there is no such process.

}  // namespace capstan::benchmark

#endif  // CAPSTAN_TESTS_BENCHMARK_PROCESS_USAGE_H_
