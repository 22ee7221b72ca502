// Record file: frames laid end to end, each with checksums. A power cut may have torn the last
// frame.
//
//   frame     header: magic 4, type 4, sequence 8, synced bytes 8, payload bytes 8, CRC-32C 4, end
//                     mark 4
//             payload
//             trailer: CRC-32C of header and payload 4, end mark 4
//
// Numbers are little-endian, CRCs as MaskCrc. The sequence counts the frames of a file from 0. The
// synced bytes are the count of bytes of the file that had been synced when the frame was written.
//
// A disk writes the sectors that were not synced in any order, so a power cut may leave later ones
// without earlier ones. Where there is no whole frame
//
//   and a header behind that place says that it had been synced --> kDataLoss: it was damaged
//   and none does                                               --> torn: the file ends there
//
// So a writer that has synced a file appends one more frame, which need not be synced: as long as
// that frame is there, damage to any frame before it is detected.
// Thread safety: a RecordReader is thread-compatible; functions are pure.
#ifndef CAPSTAN_SERVER_LOG_FRAMES_RECORD_FILE_H_
#define CAPSTAN_SERVER_LOG_FRAMES_RECORD_FILE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/storage/crc32c.h"

namespace capstan::server {

inline constexpr int64_t kFrameOverheadBytes = 48;  // Bytes of a frame beside its payload.

struct FrameHead {
  uint32_t type = 0;
  uint64_t sequence = 0;
  int64_t synced_bytes = 0;  // Synced bytes of the file; at most up to the frame's begin.
};

// Appends a frame with the given payload to `file`.
void AppendFrame(const FrameHead& head, absl::string_view payload, std::string* file);
// The same in steps: `payload_bytes` follow the first, then the second; `crc` is of all since the
// first began.
void BeginFrame(const FrameHead& head, uint64_t payload_bytes, std::string* file);
void EndFrame(const Crc32c& crc, std::string* file);

struct Frame {
  uint32_t type = 0;
  uint64_t sequence = 0;
  int64_t begin = 0;  // [begin, end) of the file.
  int64_t end = 0;
  absl::string_view payload;  // A view of the reader's bytes.
};

class RecordReader {
 public:
  // `path` is for messages. `bytes` is the whole file and outlives the reader. `first_sequence` and
  // `offset` are of the first frame in it, where it is a piece of the file.
  RecordReader(std::string path, absl::string_view bytes, uint64_t first_sequence = 0,
               int64_t offset = 0);

  // The next frame; nothing at the end, or where the rest is torn off.
  // Errors: kDataLoss  names the file, the offset and what is wrong there. Also where the frame is
  //         of a format that earlier builds wrote.
  absl::StatusOr<std::optional<Frame>> Next();

  int64_t whole_bytes() const { return offset_ + static_cast<int64_t>(at_); }  // Read as frames.
  // kDataLoss with what is wrong at whole_bytes(), once Next has found the rest to be torn off.
  const absl::Status& torn() const { return torn_; }

 private:
  // Returns the fault of the frame at at_. Fills `*frame` in if there is none.
  absl::Status Check(Frame* frame) const;
  // How much of the file had been synced, as the headers behind at_ say.
  int64_t SyncedBytes() const;

  const std::string path_;
  const absl::string_view bytes_;
  const int64_t offset_;
  uint64_t next_sequence_;
  size_t at_ = 0;
  absl::Status torn_;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_LOG_FRAMES_RECORD_FILE_H_
