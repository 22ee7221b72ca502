#include "server/log/frames/record_file.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/planted/planted_bug.h"
#include "common/status/status_macros.h"
#include "common/storage/crc32c.h"
#include "common/storage/little_endian.h"

namespace capstan::server {
namespace {

constexpr uint32_t kMagic = 0x53504143;  // "CAPS": no single wrong bit makes it an earlier one.
// Earlier formats lack something: format 1 lacks the synced bytes of frames, format 2 the writers
// of shards, and format 3 what the writers had heard of the scheduler.
constexpr uint32_t kEarlierMagics[] = {0x46504143, 0x32504143, 0x4C504143};  // CAPF, CAP2, CAPL
constexpr uint32_t kHeaderMark = 0xA5444145;
constexpr uint32_t kTrailerMark = 0xA5444E45;
constexpr size_t kHeaderBytes = 40;
constexpr size_t kHeaderCrcAt = 32;
constexpr size_t kTrailerBytes = 8;
static_assert(kHeaderBytes + kTrailerBytes == kFrameOverheadBytes);

struct Header {
  FrameHead head;
  uint64_t payload_bytes = 0;
};

// Errors: kDataLoss  what is wrong, without its place.
absl::StatusOr<Header> DecodeHeader(absl::string_view bytes) {
  if (bytes.size() < kHeaderBytes || GetLe32(bytes, 0) != kMagic ||
      GetLe32(bytes, kHeaderBytes - 4) != kHeaderMark) {
    return absl::DataLossError("there is no frame, expected one");
  }
  const uint32_t crc = MaskCrc(Crc32cOf(bytes.substr(0, kHeaderCrcAt)));
  if (GetLe32(bytes, kHeaderCrcAt) != crc) {
    return absl::DataLossError(absl::StrCat("the header has the checksum ",
                                            absl::Hex(GetLe32(bytes, kHeaderCrcAt)), ", expected ",
                                            absl::Hex(crc)));
  }
  Header header;
  header.head.type = GetLe32(bytes, 4);
  header.head.sequence = GetLe64(bytes, 8);
  header.head.synced_bytes = static_cast<int64_t>(GetLe64(bytes, 16));
  header.payload_bytes = GetLe64(bytes, 24);
  return header;
}

// Returns the earlier format whose magic number `bytes` begins with; 0: none.
int EarlierFormat(absl::string_view bytes) {
  if (bytes.size() < sizeof(kMagic)) return 0;
  const auto found =
      std::find(std::begin(kEarlierMagics), std::end(kEarlierMagics), GetLe32(bytes, 0));
  if (found == std::end(kEarlierMagics)) return 0;
  return static_cast<int>(found - std::begin(kEarlierMagics)) + 1;
}

}  // namespace

void AppendFrame(const FrameHead& head, absl::string_view payload, std::string* file) {
  const size_t begin = file->size();
  BeginFrame(head, payload.size(), file);
  file->append(payload.data(), payload.size());
  Crc32c crc;
  crc.Add(absl::string_view(*file).substr(begin));
  EndFrame(crc, file);
}

void BeginFrame(const FrameHead& head, uint64_t payload_bytes, std::string* file) {
  std::string header;
  PutLe32(kMagic, &header);
  PutLe32(head.type, &header);
  PutLe64(head.sequence, &header);
  PutLe64(static_cast<uint64_t>(head.synced_bytes), &header);
  PutLe64(payload_bytes, &header);
  PutLe32(MaskCrc(Crc32cOf(header)), &header);
  PutLe32(kHeaderMark, &header);
  file->append(header);
}

void EndFrame(const Crc32c& crc, std::string* file) {
  PutLe32(MaskCrc(crc.value()), file);
  PutLe32(kTrailerMark, file);
}

RecordReader::RecordReader(std::string path, absl::string_view bytes, uint64_t first_sequence,
                           int64_t offset)
    : path_(std::move(path)), bytes_(bytes), offset_(offset), next_sequence_(first_sequence) {}

absl::Status RecordReader::Check(Frame* frame) const {
  const absl::string_view rest = bytes_.substr(at_);
  if (const int format = EarlierFormat(rest); format > 0) {
    return absl::DataLossError(
        absl::StrCat("there is a frame of format ", format, ", expected format 4"));
  }
  CAPSTAN_ASSIGN_OR_RETURN(const Header header, DecodeHeader(rest));
  const uint64_t payload_bytes = header.payload_bytes;
  if (payload_bytes > rest.size() || kFrameOverheadBytes + payload_bytes > rest.size()) {
    return absl::DataLossError(
        absl::StrCat("the frame has ", payload_bytes, " bytes, expected at most ", rest.size()));
  }
  const size_t trailer = kHeaderBytes + payload_bytes;
  const uint32_t crc = MaskCrc(Crc32cOf(rest.substr(0, trailer)));
  const bool checked = !Planted(PlantedBug::kIgnoreChecksum);
  if ((checked && GetLe32(rest, trailer) != crc) || GetLe32(rest, trailer + 4) != kTrailerMark) {
    return absl::DataLossError(
        absl::StrCat("the frame of ", payload_bytes, " bytes has the checksum ",
                     absl::Hex(GetLe32(rest, trailer)), ", expected ", absl::Hex(crc)));
  }
  if (header.head.sequence != next_sequence_) {
    return absl::DataLossError(
        absl::StrCat("there is frame ", header.head.sequence, ", expected ", next_sequence_));
  }
  frame->type = header.head.type;
  frame->sequence = header.head.sequence;
  frame->begin = whole_bytes();
  frame->end = frame->begin + kFrameOverheadBytes + static_cast<int64_t>(payload_bytes);
  frame->payload = rest.substr(kHeaderBytes, payload_bytes);
  return absl::OkStatus();
}

int64_t RecordReader::SyncedBytes() const {
  std::string magic;
  PutLe32(kMagic, &magic);
  int64_t synced = 0;
  for (size_t at = bytes_.find(magic, at_ + 1); at != absl::string_view::npos;
       at = bytes_.find(magic, at + 1)) {
    const absl::StatusOr<Header> header = DecodeHeader(bytes_.substr(at));
    // The header has a checksum of its own. It belongs to this file if its numbers fit.
    if (header.ok() && header->head.sequence >= next_sequence_ &&
        header->head.synced_bytes <= offset_ + static_cast<int64_t>(at)) {
      synced = std::max(synced, header->head.synced_bytes);
    }
  }
  return synced;
}

absl::StatusOr<std::optional<Frame>> RecordReader::Next() {
  if (at_ == bytes_.size() || !torn_.ok()) return std::nullopt;
  Frame frame;
  const absl::Status wrong = Check(&frame);
  if (wrong.ok()) {
    ++next_sequence_;
    at_ += static_cast<size_t>(frame.end - frame.begin);
    return frame;
  }
  const std::string place = absl::StrCat(path_, ": at byte ", whole_bytes(), " ", wrong.message());
  if (EarlierFormat(bytes_.substr(at_)) > 0) return absl::DataLossError(place);
  const int64_t synced = SyncedBytes();
  if (synced > whole_bytes() || Planted(PlantedBug::kTakeTearForDamage)) {
    return absl::DataLossError(absl::StrCat(place, "; ", synced, " bytes had been synced"));
  }
  torn_ = absl::DataLossError(place);
  return std::nullopt;
}

}  // namespace capstan::server
