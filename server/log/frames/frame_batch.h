// FrameBatch: frames of a record file (record_file.h) on their way to the disk.
//
// The large fields of a message (a gradient, a shard's values) are lent to it, not copied: they are
// written from where they lie. Thread safety: thread-compatible.
// Invariant: what was appended is own_ with each of lent_ inserted at its `at`, in order.
#ifndef CAPSTAN_SERVER_LOG_FRAMES_FRAME_BATCH_H_
#define CAPSTAN_SERVER_LOG_FRAMES_FRAME_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/storage/disk.h"
#include "google/protobuf/message_lite.h"
#include "server/log/frames/record_file.h"

namespace capstan::server {

class FrameBatch {
 public:
  // Fields of at least this many bytes are lent; a write of its own is not worth it below.
  static constexpr int64_t kLentBytesMin = 32 << 10;
  explicit FrameBatch(int64_t lent_bytes_min = kLentBytesMin) : lent_bytes_min_(lent_bytes_min) {}

  // Adds a frame whose payload is `begin` and, unless it is null, `message`, which must live and
  // not change until Clear.
  void Append(const FrameHead& head, absl::string_view begin,
              const google::protobuf::MessageLite* message);

  int64_t bytes() const { return static_cast<int64_t>(own_.size() + lent_bytes_); }
  bool empty() const { return own_.empty(); }

  // Errors: the file's; some of it may have been written.
  absl::Status WriteTo(WritableFile& file) const;
  void Clear();

 private:
  class Stream;
  struct Lent {
    size_t at = 0;  // Before this byte of own_.
    absl::string_view bytes;
  };

  // Calls `take` for each piece from there on, in order, until it returns an error.
  template <typename Take>
  absl::Status ForPieces(size_t own_begin, size_t lent_begin, const Take& take) const;

  const int64_t lent_bytes_min_;
  std::string own_;
  std::vector<Lent> lent_;
  size_t lent_bytes_ = 0;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_LOG_FRAMES_FRAME_BATCH_H_
