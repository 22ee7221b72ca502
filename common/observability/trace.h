// Trace: what a process did when, as a file that https://ui.perfetto.dev and chrome://tracing show.
//
// A span has a track ("forward", "push"...) and a name. Spans of one track that overlap are shown
// in lanes of their own. Format: the JSON array of "complete" events of the Trace Event Format
// (Google, 2016). Bounded: what is beyond events_max is counted, and left out.
// Thread safety: thread-safe.
#ifndef CAPSTAN_COMMON_OBSERVABILITY_TRACE_H_
#define CAPSTAN_COMMON_OBSERVABILITY_TRACE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/time/instant.h"

namespace capstan {

class Trace {
 public:
  // About 150 bytes each, in memory and in the file.
  static constexpr size_t kEventsMax = 200'000;

  // `process` and `number` are shown for the process. Tracks are shown in this order; Add may name
  // no others.
  Trace(std::string process, int64_t number, std::vector<std::string> tracks,
        size_t events_max = kEventsMax);

  // REQUIRES: begin <= end.
  void Add(absl::string_view track, absl::string_view name, Instant begin, Instant end);

  int64_t left_out() const;
  // Times count from the first span's begin.
  std::string ToJson() const;

 private:
  struct Span {
    size_t track = 0;
    std::string name;
    Instant begin, end;
  };
  // Spans ordered by track, then by begin; each with its lane, the lowest that is free by then.
  using Lanes = std::vector<std::pair<Span, int>>;
  static Lanes Place(std::vector<Span> spans);
  static std::vector<int> CountLanes(const Lanes& placed, size_t tracks);

  const std::string process_;
  const int64_t number_;
  const std::vector<std::string> tracks_;
  const size_t events_max_;
  mutable absl::Mutex mutex_;
  std::vector<Span> spans_ ABSL_GUARDED_BY(mutex_);
  int64_t left_out_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_OBSERVABILITY_TRACE_H_
