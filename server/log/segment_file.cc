#include "server/log/segment_file.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/storage/little_endian.h"
#include "server/log/frames/record_file.h"

namespace capstan::server {
namespace {

constexpr absl::string_view kPrefix = "segment-";
constexpr absl::string_view kSuffix = ".log";
constexpr int kReadsMax = 4;  // Reading ends when two reads return the same bytes.

absl::Status TakeFrame(const Frame& frame, uint64_t number, SegmentContents* contents) {
  const auto type = static_cast<LogFrameType>(frame.type);
  if (frame.sequence == 0) {
    if (type != LogFrameType::kSegment) {
      return absl::DataLossError(absl::StrCat("the first frame has type ", frame.type));
    }
    CAPSTAN_ASSIGN_OR_RETURN(contents->head, DecodeSegmentHead(frame.payload));
    if (contents->head.number == number) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat("it is segment ", contents->head.number));
  }
  switch (type) {
    case LogFrameType::kBase:
    case LogFrameType::kRecord:
    case LogFrameType::kForget:
    case LogFrameType::kTerm: {
      if (frame.payload.size() < kLogFrameHeadBytes) break;
      LogFrame entry{.type = type,
                     .segment = number,
                     .sequence = frame.sequence,
                     .begin = frame.begin,
                     .bytes = frame.end - frame.begin};
      DecodeLogFrame(frame.payload, &entry);
      contents->frames.push_back(entry);
      return absl::OkStatus();
    }
    case LogFrameType::kSegmentRemoved:
      if (frame.payload.size() != sizeof(uint64_t)) break;
      contents->removed.push_back(GetLe64(frame.payload, 0));
      return absl::OkStatus();
    case LogFrameType::kSynced:
      if (!frame.payload.empty()) break;
      return absl::OkStatus();
    default:
      break;
  }
  return absl::DataLossError(absl::StrCat("at byte ", frame.begin, " there is a frame of type ",
                                          frame.type, " and ", frame.payload.size(), " bytes"));
}

// Sets `torn` to what the reader says of the end.
absl::StatusOr<std::optional<SegmentContents>> Parse(const std::string& path, uint64_t number,
                                                     absl::string_view file,
                                                     std::optional<int64_t> bytes,
                                                     absl::Status* torn) {
  if (bytes.has_value()) file = file.substr(0, static_cast<size_t>(*bytes));
  RecordReader reader(path, file);
  SegmentContents contents;
  while (true) {
    CAPSTAN_ASSIGN_OR_RETURN(const std::optional<Frame> frame, reader.Next());
    if (!frame.has_value()) break;
    CAPSTAN_RETURN_IF_ERROR(Annotate(TakeFrame(*frame, number, &contents), path));
  }
  *torn = reader.torn();
  contents.whole_bytes = reader.whole_bytes();
  if (bytes.has_value() && contents.whole_bytes != *bytes) {
    return absl::DataLossError(absl::StrCat(
        path, ": whole records end at byte ", contents.whole_bytes, ", expected ", *bytes,
        ", which were synced", torn->ok() ? "" : absl::StrCat(": ", torn->message())));
  }
  if (contents.whole_bytes == 0) return std::nullopt;
  return contents;
}

}  // namespace

std::string SegmentPath(const std::string& folder, uint64_t number) {
  return absl::StrCat(folder, "/", kPrefix, absl::StrFormat("%010d", number), kSuffix);
}

absl::StatusOr<std::vector<uint64_t>> ListSegments(Disk& disk, const std::string& folder) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<std::string> names, disk.List(folder));
  std::vector<uint64_t> numbers;
  for (absl::string_view name : names) {
    uint64_t number = 0;
    if (absl::ConsumePrefix(&name, kPrefix) && absl::ConsumeSuffix(&name, kSuffix) &&
        absl::SimpleAtoi(name, &number)) {
      numbers.push_back(number);
    }
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

absl::StatusOr<std::optional<SegmentContents>> ReadSegment(Disk& disk, const std::string& folder,
                                                           uint64_t number,
                                                           std::optional<int64_t> bytes) {
  const std::string path = SegmentPath(folder, number);
  std::string before;
  for (int attempt = 0; attempt < kReadsMax; ++attempt) {
    absl::StatusOr<std::string> file = disk.Read(path, kSegmentReadBytesMax);
    if (absl::IsNotFound(file.status()) || absl::IsResourceExhausted(file.status())) {
      return absl::DataLossError(file.status().message());  // It is missing, or far too large.
    }
    if (!file.ok()) return file.status();
    absl::Status torn;
    absl::StatusOr<std::optional<SegmentContents>> contents =
        Parse(path, number, *file, bytes, &torn);
    // Checksums vouch for whole frames. Anything else may be an error of the transfer, unless two
    // reads return it.
    if ((contents.ok() && torn.ok()) || (attempt > 0 && *file == before)) return contents;
    before = *std::move(file);
  }
  return absl::DataLossError(
      absl::StrCat(path, ": each of ", kReadsMax, " reads brought other bytes"));
}

}  // namespace capstan::server
