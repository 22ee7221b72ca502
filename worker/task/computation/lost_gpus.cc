#include "worker/task/computation/lost_gpus.h"

#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace capstan::worker {
namespace {

constexpr char kName[] = "capstan/lost_gpus";

}  // namespace

absl::Status WithLostGpus(absl::Status status, absl::Span<const int> gpus) {
  if (!gpus.empty()) status.SetPayload(kName, absl::Cord(absl::StrJoin(gpus, ",")));
  return status;
}

std::vector<int> LostGpusOf(const absl::Status& status) {
  const auto text = status.GetPayload(kName);
  std::vector<int> gpus;
  if (!text.has_value()) return gpus;
  for (const absl::string_view word : absl::StrSplit(std::string(*text), ',')) {
    int gpu = 0;
    if (absl::SimpleAtoi(word, &gpu)) gpus.push_back(gpu);
  }
  return gpus;
}

}  // namespace capstan::worker
