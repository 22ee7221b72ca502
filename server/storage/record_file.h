// Record file: frames laid end to end, each with checksums, of which a power cut may have torn off
// the end.
//
//   frame     header: magic 4, type 4, sequence 8, payload bytes 8, CRC-32C 4, end mark 4
//             payload
//             trailer: CRC-32C of header and payload 4, end mark 4
//
// Numbers are little-endian, CRCs as MaskCrc. The sequence counts the frames of a file from 0. The
// last byte of header and trailer is never zero, so that a frame that was torn off, whether the
// file ends there or zeros follow, can be told from one that was damaged:
//
//   the file ends within the frame, or nothing but zeros follows a point within it --> torn
//   anything else that does not fit, also in the very last frame                   --> kDataLoss
//
// Thread safety: a RecordReader is thread-compatible; functions are pure.
#ifndef CAPSTAN_SERVER_STORAGE_RECORD_FILE_H_
#define CAPSTAN_SERVER_STORAGE_RECORD_FILE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/storage/crc32c.h"

namespace capstan::server {

inline constexpr int64_t kFrameOverheadBytes = 40;  // Of a frame beside its payload.

// Appends a frame with the given payload to `file`.
void AppendFrame(uint32_t type, uint64_t sequence, absl::string_view payload, std::string* file);
// The same in steps: `payload_bytes` follow the first, then the second; `crc` is of all since the
// first began.
void BeginFrame(uint32_t type, uint64_t sequence, uint64_t payload_bytes, std::string* file);
void EndFrame(const Crc32c& crc, std::string* file);

struct Frame {
  uint32_t type = 0;
  uint64_t sequence = 0;
  int64_t begin = 0;  // [begin, end) of the file.
  int64_t end = 0;
  absl::string_view payload;  // Of the reader's bytes.
};

class RecordReader {
 public:
  // `path` is for messages. `bytes` is the whole file and outlives the reader. `first_sequence` and
  // `offset` are of the first frame in it, where it is a piece of the file.
  RecordReader(std::string path, absl::string_view bytes, uint64_t first_sequence = 0,
               int64_t offset = 0);

  // The next frame; nothing at the end, or where the rest is torn off.
  // Errors: kDataLoss  names the file, the offset and what is wrong there.
  absl::StatusOr<std::optional<Frame>> Next();

  int64_t whole_bytes() const { return offset_ + static_cast<int64_t>(at_); }  // Read as frames.
  bool torn() const { return torn_; }  // Next has found torn bytes at whole_bytes().

 private:
  bool ZerosFrom(size_t at) const;
  absl::Status Loss(absl::string_view what) const;

  const std::string path_;
  const absl::string_view bytes_;
  const int64_t offset_;
  uint64_t next_sequence_;
  size_t at_ = 0;
  bool torn_ = false;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORAGE_RECORD_FILE_H_
