// Counts: the work that emulated GPUs are asked to do, counted instead of computed.
//
// If the environment variable CAPSTAN_EMULATED_COUNTS names a file, that file holds a Counts, and
// the emulation computes, copies and keeps no values: device memory reads as zeros, and has a
// card's size. A step of a large network then takes seconds. The bytes of each piece of work are
// estimates:
//
//   copy, memset      the bytes of device memory that it reads and those that it writes
//   cuDNN, cuBLASLt   each operand of the descriptors once, and no workspace; one kernel
//   own kernel        some groups of its blocks run; each page of device memory counts that a group
//                     reads, and each that it writes. In a large grid 4 groups run, evenly spread:
//                     a page that most of them touch counts once, other pages as many times as
//                     there are such groups in the grid. Bytes that blocks read again from a cache
//                     therefore cost nothing, and a small array costs a page.
//
// Thread safety: REQUIRES Runtime::mutex, like all work that runs.
#ifndef CAPSTAN_KERNELS_CUDA_EMULATION_COUNTS_H_
#define CAPSTAN_KERNELS_CUDA_EMULATION_COUNTS_H_

#include <cstdint>
#include <functional>

namespace capstan::kernels::cuda::emulation {

// The counts since this process began.
struct Counts {
  uint64_t kernels = 0;  // Kernels launched, directly and in graphs.
  uint64_t graphs = 0;   // Graphs launched.
  uint64_t bytes = 0;    // Bytes read from and written to the memory of GPUs.
};

// Returns this process's counts. Null: nothing is counted, and work is computed.
Counts* CountsOrNull();

// Count a kernel, or a copy. False: nothing is counted, and the caller must compute.
bool CountKernel(uint64_t bytes);
bool CountCopy(uint64_t bytes);

// Estimates the bytes of an own kernel with `blocks` blocks. `run` runs blocks [begin, end). A
// group is `unit` consecutive blocks, which touch neighbouring memory.
// REQUIRES: CountsOrNull() is not null.
uint64_t BytesTouched(uint64_t blocks, uint64_t unit,
                      const std::function<void(uint64_t begin, uint64_t end)>& run);

}  // namespace capstan::kernels::cuda::emulation

#endif  // CAPSTAN_KERNELS_CUDA_EMULATION_COUNTS_H_
