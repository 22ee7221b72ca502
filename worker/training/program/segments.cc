#include "worker/training/program/segments.h"

#include <algorithm>

namespace capstan::worker {
namespace {

// A step joins the segment before it if the parameters that it needs are in that segment's part:
// those that its first step added, extended to at least `part_elements`.
std::vector<Segment> CutForward(const std::vector<Step>& steps, int64_t part_elements) {
  std::vector<Segment> segments;
  int64_t covered = 0;
  int64_t reads_end = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    const int64_t before = reads_end;
    reads_end = std::max(reads_end, ParametersEnd(steps[i]));
    if (segments.empty() || reads_end > covered) {
      segments.push_back({.begin = i});
      covered = std::max(reads_end, before + part_elements);
    }
    segments.back().end = i + 1;
    segments.back().reads_end = reads_end;
  }
  return segments;
}

// For each step: after it has run, no step uses parameters and gradient from this element on.
std::vector<int64_t> DoneFrom(const std::vector<Step>& backward) {
  std::vector<int64_t> done(backward.size());
  int64_t end = 0;
  for (size_t i = backward.size(); i-- > 0;) {
    done[i] = end;
    end = std::max(end, ParametersEnd(backward[i]));
  }
  return done;
}

std::vector<Segment> CutBackward(const std::vector<Step>& steps, int64_t parameter_count,
                                 int64_t part_elements) {
  const std::vector<int64_t> done = DoneFrom(steps);
  std::vector<Segment> segments;
  int64_t told = parameter_count;
  size_t begin = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    const bool last = i + 1 == steps.size();
    if (!last && told - done[i] < part_elements) continue;
    segments.push_back({.begin = begin, .end = i + 1, .done_from = done[i]});
    told = done[i];
    begin = i + 1;
  }
  return segments;
}

}  // namespace

Segments CutIntoSegments(const Program& program, int64_t parameter_count, int64_t part_elements) {
  return {.forward = CutForward(program.forward, part_elements),
          .backward = CutBackward(program.backward, parameter_count, part_elements)};
}

}  // namespace capstan::worker
