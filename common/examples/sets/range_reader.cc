#include "common/examples/sets/range_reader.h"

#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "common/examples/sets/example_source.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

constexpr int64_t kExamplesAtOnce = 1024;

int64_t BytesOf(const ExampleBatch& examples) {
  constexpr int64_t kFeature = sizeof(uint64_t) + sizeof(float) + sizeof(int32_t);
  constexpr int64_t kExample = sizeof(float) + sizeof(int64_t);
  return examples.value_count() * kFeature +
         examples.count() *
             (kExample + examples.dense_columns() * static_cast<int64_t>(sizeof(float)));
}

absl::Status CheckMemory(const std::string& path, const ExampleBatch& examples) {
  static const int64_t bytes_max =
      int64_t{sysconf(_SC_PHYS_PAGES)} * int64_t{sysconf(_SC_PAGESIZE)} / 4 * 3;
  if (BytesOf(examples) <= bytes_max) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(path, ": its examples take more than ", bytes_max >> 20,
                   " MiB of memory, 3/4 of this machine's; expected smaller files, uncompressed, "
                   "that are read in blocks (data.examples.memory_mib)"));
}

}  // namespace

absl::Status RangeReader::Append(const FileRange& range, ExampleBatch* batch) {
  CAPSTAN_ASSIGN_OR_RETURN(const auto source,
                           ExampleSource::Open(range, parser_.get(), &bad_lines_, {}));
  for (;;) {
    CAPSTAN_RETURN_IF_ERROR(source->Next(kExamplesAtOnce, &next_));
    if (next_.count() == 0) return absl::OkStatus();
    batch->Append(next_, 0, next_.count());
    if (progress_) progress_("examples read", next_.count());
    CAPSTAN_RETURN_IF_ERROR(CheckMemory(range.path, *batch));
  }
}

}  // namespace capstan
