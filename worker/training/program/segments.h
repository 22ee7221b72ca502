// CutIntoSegments: where a program's passes are cut, so that parameters can come and gradients go
// while it runs.
//
// A segment is a run of steps between which nobody looks: a device gets it as one piece. Before a
// segment of the forward pass its parameters must be there; after one of the backward pass a part
// of the gradient is final, and goes. Thread safety: values and pure functions.
#ifndef CAPSTAN_WORKER_TRAINING_PROGRAM_SEGMENTS_H_
#define CAPSTAN_WORKER_TRAINING_PROGRAM_SEGMENTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "worker/training/program/program.h"

namespace capstan::worker {

struct Segment {
  size_t begin = 0, end = 0;  // Of the pass's steps; not empty.
  // Forward: it and the segments before it read no parameter from here on.
  int64_t reads_end = 0;
  // Backward: once it has run, parameters and gradient are done with from here on.
  int64_t done_from = 0;
};

struct Segments {
  std::vector<Segment> forward, backward;  // Each covers its pass, in order.
};

// Into how many segments a pass is cut.
enum class Cut {
  kByParts,  // Where parts of the parameters come, or of the gradient go.
  kNot,      // Into one: nothing is exchanged.
};

// Cuts where at least `part_elements` (>= 1) more parameters are needed, or are done with. With 1
// that is wherever there are any.
Segments CutIntoSegments(const Program& program, int64_t parameter_count, int64_t part_elements);

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_PROGRAM_SEGMENTS_H_
