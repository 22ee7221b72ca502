// Bytes of a log's segment to RecordReader: whole frames, made from the input, with bits changed,
// the end cut off or other bytes behind. Frames come in order and without gaps until the reader
// stops; where nothing was damaged all of them come.
#include "server/log/frames/record_file.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"

namespace capstan::fuzz {
namespace {

struct Segment {
  std::string bytes;
  uint64_t frames = 0;
  bool whole = true;  // Nothing but these frames, as they were made.
};

Segment MakeSegment(Input& input) {
  Segment segment;
  while (!input.empty()) {
    const uint8_t what = input.Byte() % 8;
    if (what == 0) {
      absl::StrAppend(&segment.bytes, input.Take(input.Byte()));
      segment.whole = false;
    } else if (what == 1 && !segment.bytes.empty()) {
      char& byte = segment.bytes[input.Word() % segment.bytes.size()];
      byte = static_cast<char>(byte ^ (1 << input.Byte() % 8));
      segment.whole = false;
    } else if (what == 2) {
      segment.bytes.erase(segment.bytes.size() * input.Byte() / 256);
      segment.whole = false;
    } else {
      const server::FrameHead head{.type = input.Byte(),
                                   .sequence = segment.frames++,
                                   .synced_bytes = static_cast<int64_t>(input.Number() * 16)};
      server::AppendFrame(head, input.Take(input.Byte()), &segment.bytes);
    }
  }
  return segment;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  const Segment segment = MakeSegment(input);
  server::RecordReader reader("segment", segment.bytes);
  uint64_t frames = 0;
  int64_t end = 0;
  while (true) {
    const absl::StatusOr<std::optional<server::Frame>> frame = reader.Next();
    if (!frame.ok()) {
      FUZZ_CHECK(absl::IsDataLoss(frame.status()) && !segment.whole);
      return 0;
    }
    if (!frame->has_value()) break;
    FUZZ_CHECK((*frame)->sequence == frames && (*frame)->begin == end);
    FUZZ_CHECK((*frame)->end ==
               end + server::kFrameOverheadBytes + static_cast<int64_t>((*frame)->payload.size()));
    end = (*frame)->end;
    ++frames;
  }
  FUZZ_CHECK(reader.whole_bytes() == end && end <= static_cast<int64_t>(segment.bytes.size()));
  if (segment.whole) FUZZ_CHECK(frames == segment.frames && reader.torn().ok());
  return 0;
}

}  // namespace capstan::fuzz
