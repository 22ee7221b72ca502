// CutIntoSegments: cuts a program's passes into segments, so that parameters can arrive and
// gradients can leave while it runs.
//
// A segment is a sequence of steps that a device gets as one piece; nothing is exchanged between
// them. Before a segment of the forward pass its parameters must be there; after one of the
// backward pass a part of the gradient is final and leaves. Thread safety: values and pure
// functions.
#ifndef CAPSTAN_WORKER_TRAINING_PROGRAM_SEGMENTS_H_
#define CAPSTAN_WORKER_TRAINING_PROGRAM_SEGMENTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "worker/training/program/program.h"

namespace capstan::worker {

struct Segment {
  size_t begin = 0, end = 0;  // The range of its steps in the pass; not empty.
  // Forward: this segment and those before it read no parameter from here on.
  int64_t reads_end = 0;
  // Backward: after this segment no step uses parameters and gradient from here on.
  int64_t done_from = 0;
};

struct Segments {
  std::vector<Segment> forward, backward;  // Each covers its pass, in order.
};

// Whether a pass is cut into several segments.
enum class Cut {
  kByParts,  // Several: parts of the parameters arrive, or of the gradient leave, in between.
  kNot,      // One: nothing is exchanged.
};

// Cuts where at least `part_elements` (>= 1) more parameters are needed, or are not used any more.
// If it is 1, cuts at every step that changes this.
Segments CutIntoSegments(const Program& program, int64_t parameter_count, int64_t part_elements);

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_PROGRAM_SEGMENTS_H_
