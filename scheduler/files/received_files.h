// ReceivedFiles: writes files of jobs that arrive over the network in pieces, and reads such files
// in pieces.
//
//   Write(0) --> BEING RECEIVED --Write, Write...--> BEING RECEIVED --Finish--> durable, named
//                     \ Write(0) again: restarted \ a disk error, or forgotten: removed
//
// A file is open while it is being received. If its sender died, the file is forgotten when the
// next one begins, since its bytes stay on the disk as long as it is open. A restarted scheduler
// knows no open file, so senders start again at 0. The caller checks the right to write into a
// folder.
// Thread safety: thread-compatible; JobFilesService's thread owns it.
// Invariant: at most `open_max` files are open.
#ifndef CAPSTAN_SCHEDULER_FILES_RECEIVED_FILES_H_
#define CAPSTAN_SCHEDULER_FILES_RECEIVED_FILES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

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
    // A file that received no piece for this long is forgotten when the next one begins.
    absl::Duration idle_limit = absl::Seconds(60);
  };
  // A piece that was read from a file.
  struct Piece {
    std::string data;
    int64_t file_bytes = 0;  // Size of the whole file.
  };
  static constexpr int64_t kPieceBytesMax = 1 << 20;

  // `disk` outlives this object.
  ReceivedFiles(Disk* disk, const Options& options) : disk_(disk), options_(options) {}

  // Creates `folder` with a file kFolderMark in it, unless that file exists. Returns its content, a
  // random word. Errors: those of the disk.
  absl::StatusOr<std::string> MarkFolder(const std::string& folder);

  // Appends `data` to a file in `folder`, which exists. A piece at offset 0 starts the file again.
  // A repetition of the last piece changes nothing.
  // Errors: kInvalidArgument     the name, offset or size is out of range.
  //         kUnavailable         `crc32c` is not that of `data`, or open_max files are being
  //                              received; send the piece again.
  //         kFailedPrecondition  the bytes before `offset` are missing; start again at 0.
  //         kResourceExhausted, kAborted  the disk is full, or has another error; the file is
  //                              removed.
  absl::Status Write(const std::string& folder, const std::string& file, int64_t offset,
                     absl::string_view data, uint32_t crc32c, Instant now);

  // Renames the complete file to `name`, durably. A repetition changes nothing.
  // Errors: kDataLoss  the file has another size or checksum, and is removed. And those of Write().
  absl::Status Finish(const std::string& folder, const std::string& file, const std::string& name,
                      int64_t bytes, uint32_t crc32c);

  // Reads up to `bytes_max` bytes of an existing file; none if `offset` is behind its end.
  // Errors: kNotFound. kInvalidArgument  as Write(). kDataLoss  the disk cannot read it.
  absl::StatusOr<Piece> Read(const std::string& folder, const std::string& file, int64_t offset,
                             int64_t bytes_max);

 private:
  struct Open {
    std::unique_ptr<WritableFile> file;
    int64_t bytes = 0;
    Crc32c crc;
    int64_t last_offset = 0;  // Offset of the last piece.
    uint32_t last_crc32c = 0;
    Instant last_at;
  };

  absl::Status Begin(const std::string& path, Instant now);
  absl::Status MakeRoom(Instant now);
  void Forget(const std::string& path);
  // Returns OK if `path` holds exactly this file, so an earlier Finish() has succeeded.
  absl::Status CheckFinished(const std::string& path, int64_t bytes, uint32_t crc32c);

  Disk* const disk_;
  const Options options_;
  std::map<std::string, Open> open_;  // Keyed by path.
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_FILES_RECEIVED_FILES_H_
