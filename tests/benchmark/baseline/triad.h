// The STREAM triad, a[i] = b[i] + s * c[i]: the machine's memory speed, which update rules are
// compared with. Counted as STREAM does: 12 bytes an element. In AVX-512 where the CPU has it.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_TESTS_BENCHMARK_BASELINE_TRIAD_H_
#define CAPSTAN_TESTS_BENCHMARK_BASELINE_TRIAD_H_

#include <cstdint>

namespace capstan::benchmark {

inline constexpr double kTriadBytes = 12;  // An element.

// STREAM's own loop, as the compiler vectorises it: a line of `a` is fetched before it is
// overwritten, which is not counted.
void Triad(int64_t n, const float* b, const float* c, float* a);

// Same as Triad, with stores that do not fetch first. REQUIRES: `a` is aligned to 64 bytes.
void StreamingTriad(int64_t n, const float* b, const float* c, float* a);

}  // namespace capstan::benchmark

#endif  // CAPSTAN_TESTS_BENCHMARK_BASELINE_TRIAD_H_
