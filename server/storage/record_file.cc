#include "server/storage/record_file.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/planted/planted_bug.h"
#include "common/storage/crc32c.h"
#include "common/storage/little_endian.h"

namespace capstan::server {
namespace {

constexpr uint32_t kMagic = 0x46504143;       // "CAPF"
constexpr uint32_t kHeaderMark = 0xA5444145;  // Its last byte is 0xA5: see the invariant on tears.
constexpr uint32_t kTrailerMark = 0xA5444E45;
constexpr size_t kHeaderBytes = 32;
constexpr size_t kHeaderCrcAt = 24;
constexpr size_t kTrailerBytes = 8;
static_assert(kHeaderBytes + kTrailerBytes == kFrameOverheadBytes);

}  // namespace

void AppendFrame(uint32_t type, uint64_t sequence, absl::string_view payload, std::string* file) {
  const size_t begin = file->size();
  BeginFrame(type, sequence, payload.size(), file);
  file->append(payload.data(), payload.size());
  Crc32c crc;
  crc.Add(absl::string_view(*file).substr(begin));
  EndFrame(crc, file);
}

void BeginFrame(uint32_t type, uint64_t sequence, uint64_t payload_bytes, std::string* file) {
  std::string header;
  PutLe32(kMagic, &header);
  PutLe32(type, &header);
  PutLe64(sequence, &header);
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

bool RecordReader::ZerosFrom(size_t at) const {
  return bytes_.find_first_not_of('\0', at) == absl::string_view::npos;
}

absl::Status RecordReader::Loss(absl::string_view what) const {
  return absl::DataLossError(absl::StrCat(path_, ": at byte ", whole_bytes(), " ", what));
}

absl::StatusOr<std::optional<Frame>> RecordReader::Next() {
  const absl::string_view rest = bytes_.substr(at_);
  if (rest.empty() || torn_) return std::nullopt;
  if (rest.size() < kHeaderBytes || ZerosFrom(at_ + kHeaderBytes - 1)) {
    torn_ = true;
    return std::nullopt;
  }
  const absl::string_view header = rest.substr(0, kHeaderBytes);
  const uint32_t header_crc = MaskCrc(Crc32cOf(header.substr(0, kHeaderCrcAt)));
  if (GetLe32(header, 0) != kMagic || GetLe32(header, kHeaderBytes - 4) != kHeaderMark) {
    return Loss("there is no frame, expected one");
  }
  if (GetLe32(header, kHeaderCrcAt) != header_crc) {
    return Loss(absl::StrCat("the header has the checksum ",
                             absl::Hex(GetLe32(header, kHeaderCrcAt)), ", expected ",
                             absl::Hex(header_crc)));
  }
  const uint64_t payload_bytes = GetLe64(header, 16);
  if (payload_bytes > rest.size() || kFrameOverheadBytes + payload_bytes > rest.size()) {
    torn_ = true;
    return std::nullopt;
  }
  Frame frame;
  frame.type = GetLe32(header, 4);
  frame.sequence = GetLe64(header, 8);
  frame.begin = whole_bytes();
  frame.end = frame.begin + kFrameOverheadBytes + static_cast<int64_t>(payload_bytes);
  frame.payload = rest.substr(kHeaderBytes, payload_bytes);
  const size_t trailer = kHeaderBytes + payload_bytes;
  if (rest[trailer + kTrailerBytes - 1] == '\0' && ZerosFrom(at_ + trailer + kTrailerBytes - 1)) {
    torn_ = true;
    return std::nullopt;
  }
  const uint32_t crc = MaskCrc(Crc32cOf(rest.substr(0, trailer)));
  const bool checked = !Planted(PlantedBug::kIgnoreChecksum);
  if ((checked && GetLe32(rest, trailer) != crc) || GetLe32(rest, trailer + 4) != kTrailerMark) {
    return Loss(absl::StrCat("the frame of ", payload_bytes, " bytes has the checksum ",
                             absl::Hex(GetLe32(rest, trailer)), ", expected ", absl::Hex(crc)));
  }
  if (frame.sequence != next_sequence_) {
    return Loss(absl::StrCat("there is frame ", frame.sequence, ", expected ", next_sequence_));
  }
  ++next_sequence_;
  at_ += static_cast<size_t>(frame.end - frame.begin);
  return frame;
}

}  // namespace capstan::server
