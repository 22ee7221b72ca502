// What emulated GPUs are asked to do, counted instead of computed.
//
// Where the environment variable CAPSTAN_EMULATED_COUNTS names a file, that file holds a Counts,
// and no value is computed, copied or kept: device memory reads as zeros, and has a card's size. So
// a step of a large network takes seconds. Bytes are estimated, work by work:
//
//   copy, memset      those of device memory that are read, and those that are written
//   cuDNN, cuBLASLt   each operand once, as descriptors have it, and no workspace; one kernel
//   own kernel        some groups of its blocks run, and each page of device memory that a group
//                     reads counts, and each that it writes. Of a large grid 4 groups run, evenly
//                     spread: a page that most of them touch counts once, others as many times as
//                     there are such groups in the grid. So what blocks read again from a cache
//                     costs nothing, and a small array costs a page.
//
// Thread safety: under Runtime::mutex, as all work that runs.
#ifndef CAPSTAN_KERNELS_CUDA_EMULATION_COUNTS_H_
#define CAPSTAN_KERNELS_CUDA_EMULATION_COUNTS_H_

#include <cstdint>
#include <functional>

namespace capstan::kernels::cuda::emulation {

// They count from the beginning of this process.
struct Counts {
  uint64_t kernels = 0;  // Launched by themselves and in graphs.
  uint64_t graphs = 0;   // Launched.
  uint64_t bytes = 0;    // Read from and written to the memory of GPUs.
};

// Null: nothing is counted, and work is computed.
Counts* CountsOrNull();

// Counts a kernel, or a copy. False: nothing is counted, it has to be computed.
bool CountKernel(uint64_t bytes);
bool CountCopy(uint64_t bytes);

// The bytes of an own kernel of `blocks` blocks. `run` runs those from one number to before
// another; memory that `unit` blocks in a row touch lies together.
// REQUIRES: CountsOrNull() is not null.
uint64_t BytesTouched(uint64_t blocks, uint64_t unit,
                      const std::function<void(uint64_t begin, uint64_t end)>& run);

}  // namespace capstan::kernels::cuda::emulation

#endif  // CAPSTAN_KERNELS_CUDA_EMULATION_COUNTS_H_
