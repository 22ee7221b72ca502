#include "worker/data/batch_prefetcher.h"

namespace capstan::worker {

std::string NameOf(const BatchRange& range) {
  return absl::StrCat("the batch of positions [", range.begin, ", ", range.end, ") of epoch ",
                      range.epoch);
}

}  // namespace capstan::worker
