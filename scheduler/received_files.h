// ReceivedFiles: files of jobs that come to this host over the network, piece by piece.
//
//   Write(0) --> BEING RECEIVED --Write, Write...--> BEING RECEIVED --Finish--> durable, named
//                     \ Write(0) again: anew    \ an error of the disk, forgotten: gone
//
// A file is open while it is being received; where it was left (its sender died), it is forgotten
// once another one needs its place. A scheduler that starts again knows of none: senders begin
// anew. Who may write into a folder is for the caller to decide.
// Thread safety: thread-compatible; one thread of the scheduler's shell owns it.
// Invariant: at most `open_max` files are open.
#ifndef CAPSTAN_SCHEDULER_RECEIVED_FILES_H_
#define CAPSTAN_SCHEDULER_RECEIVED_FILES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/storage/crc32c.h"
#include "common/storage/disk.h"
#include "common/time/instant.h"

namespace capstan::scheduler {

class ReceivedFiles {
 public:
  struct Options {
    size_t open_max = 256;
    // A file without a piece for so long may be forgotten where the place is needed.
    absl::Duration idle_limit = absl::Seconds(60);
  };
  // What is read of a file.
  struct Piece {
    std::string data;
    int64_t file_bytes = 0;  // Of the whole file.
  };
  static constexpr int64_t kPieceBytesMax = 1 << 20;

  // `disk` outlives it.
  ReceivedFiles(Disk* disk, const Options& options) : disk_(disk), options_(options) {}

  // Makes `folder` with a file kFolderMark in it; its content, a random word that stays while the
  // file is there. Errors: the disk's.
  absl::StatusOr<std::string> MarkFolder(const std::string& folder);

  // Appends `data` to a file in `folder`, which exists; at offset 0 it begins anew. The last piece
  // once more changes nothing.
  // Errors: kInvalidArgument     the name, offset or size is out of range.
  //         kUnavailable         `crc32c` is not that of the data; send it again. Or open_max files
  //                              are being received.
  //         kFailedPrecondition  what comes before `offset` is not here: begin at 0.
  //         kResourceExhausted, kAborted  the disk is full, or refuses otherwise; the file is gone.
  absl::Status Write(const std::string& folder, const std::string& file, int64_t offset,
                     absl::string_view data, uint32_t crc32c, Instant now);

  // Gives the file its name, durably. Once more it changes nothing.
  // Errors: kDataLoss  it has another size or checksum; it is gone. And as above.
  absl::Status Finish(const std::string& folder, const std::string& file, const std::string& name,
                      int64_t bytes, uint32_t crc32c);

  // Up to `bytes_max` of a file that is there.
  // Errors: kNotFound. kInvalidArgument, kAborted  as above.
  absl::StatusOr<Piece> Read(const std::string& folder, const std::string& file, int64_t offset,
                             int64_t bytes_max);

 private:
  struct Open {
    std::unique_ptr<WritableFile> file;
    int64_t bytes = 0;
    Crc32c crc;
    int64_t last_offset = 0;  // Of the last piece.
    uint32_t last_crc32c = 0;
    Instant last_at;
  };

  absl::Status Begin(const std::string& path, Instant now);
  absl::Status MakeRoom(Instant now);
  void Forget(const std::string& path);
  // The file is there under its name: Finish had done its work before.
  absl::Status CheckFinished(const std::string& path, int64_t bytes, uint32_t crc32c);

  Disk* const disk_;
  const Options options_;
  absl::btree_map<std::string, Open> open_;  // By path.
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_RECEIVED_FILES_H_
