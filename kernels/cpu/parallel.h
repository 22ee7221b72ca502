// ParallelFor: a loop over independent items on OpenMP threads.
//
// REQUIRES: items write disjoint memory. The result then does not depend on the thread count.
// Thread safety: a pure function of its arguments.
#ifndef CAPSTAN_KERNELS_CPU_PARALLEL_H_
#define CAPSTAN_KERNELS_CPU_PARALLEL_H_

#include <omp.h>

#include <cstdint>

namespace capstan::kernels {

// Calls body(item, thread) for each item of [0, count), with 0 <= thread < threads.
template <typename Body>
void ParallelFor(int threads, int64_t count, const Body& body) {
  if (threads == 1 || count <= 1) {
    for (int64_t item = 0; item < count; ++item) body(item, 0);
    return;
  }
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t item = 0; item < count; ++item) body(item, omp_get_thread_num());
}

// Cuts [0, count) into chunks and calls body(begin, end) for each. The boundaries do not depend on
// `threads`.
template <typename Body>
void ParallelForChunks(int threads, int64_t count, int64_t chunk, const Body& body) {
  ParallelFor(threads, (count + chunk - 1) / chunk, [&](int64_t item, int) {
    const int64_t begin = item * chunk;
    body(begin, count - begin < chunk ? count : begin + chunk);
  });
}

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_CPU_PARALLEL_H_
