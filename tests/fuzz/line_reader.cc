// The lines of a file of any bytes: where they can be read as one range, ranges that cut the file
// anywhere give the same lines, each once.
#include "common/examples/files/line_reader.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/target.h"

namespace capstan::fuzz {
namespace {

// Appends the range's lines. False: they cannot be read.
bool ReadLines(const FileRange& range, const LineReader::Options& options,
               std::vector<std::string>* lines) {
  absl::StatusOr<std::unique_ptr<LineReader>> reader = LineReader::Open(range, options);
  FUZZ_CHECK(reader.ok());
  int64_t before = -1;
  while (true) {
    absl::string_view line;
    const absl::StatusOr<bool> more = (*reader)->Next(&line);
    if (!more.ok()) {
      FUZZ_CHECK(absl::IsDataLoss(more.status()));
      return false;
    }
    if (!*more) return true;
    FUZZ_CHECK(static_cast<int64_t>(line.size()) <= options.line_bytes_max);
    // The first line of a file belongs to the range of the byte order mark before it.
    const bool behind_mark = range.begin == 0 && before < 0 && (*reader)->line_begin() == 3;
    FUZZ_CHECK((*reader)->line_begin() > before);
    FUZZ_CHECK((*reader)->line_begin() < range.end || behind_mark);
    before = (*reader)->line_begin();
    lines->emplace_back(line);
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  const LineReader::Options options{.line_bytes_max = 1 + input.Byte(),
                                    .window_bytes = input.Byte() % 32,
                                    .read_bytes = 1 + input.Byte()};
  std::vector<int64_t> cuts;
  for (int i = input.Byte() % 4; i > 0; --i) cuts.push_back(input.Byte());
  const absl::string_view bytes = input.Rest();
  if (bytes.empty()) return 0;
  const auto end = static_cast<int64_t>(bytes.size());
  const MemoryFile file(bytes);
  std::vector<std::string> whole;
  if (!ReadLines({.path = file.path(), .begin = 0, .end = end}, options, &whole)) return 0;
  for (int64_t& cut : cuts) cut %= end;
  cuts.push_back(end);
  std::sort(cuts.begin(), cuts.end());
  std::vector<std::string> parts;
  int64_t begin = 0;
  for (const int64_t cut : cuts) {
    if (cut == begin) continue;
    FUZZ_CHECK(ReadLines({.path = file.path(), .begin = begin, .end = cut}, options, &parts));
    begin = cut;
  }
  FUZZ_CHECK(parts == whole);
  return 0;
}

}  // namespace capstan::fuzz
