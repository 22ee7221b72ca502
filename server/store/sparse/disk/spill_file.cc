#include "server/store/sparse/disk/spill_file.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/storage/files/disk_error.h"
#include "common/storage/files/file_bytes.h"

namespace capstan::server {
namespace {

absl::Status Failed(absl::string_view what, const std::string& folder) {
  return DiskError(what, absl::StrCat("rows in ", folder));
}

size_t LargestOf(absl::Span<const SpillFile::Piece> pieces) {
  size_t largest = 0;
  for (const SpillFile::Piece& piece : pieces) largest = std::max(largest, piece.bytes);
  return largest;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SpillFile>> SpillFile::Create(const std::string& folder,
                                                             size_t segment_bytes) {
  std::string path = folder + "/XXXXXX";
  const int fd = mkostemp(path.data(), O_CLOEXEC);
  if (fd < 0) return Failed("keep", folder);
  std::unique_ptr<SpillFile> file(new SpillFile(folder, segment_bytes, fd));
  if (unlink(path.c_str()) != 0) return Failed("keep", folder);
  // This hints that rows are read at random: what lies behind one is not wanted next.
  posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
  return file;
}

SpillFile::Segment SpillFile::TakeSegment() {
  absl::MutexLock lock(&mutex_);
  Segment segment{.number = end_, .use = ++uses_};
  if (free_.empty()) {
    ++end_;
  } else {
    segment.number = free_.back();
    free_.pop_back();
  }
  return segment;
}

void SpillFile::Return(uint32_t segment) {
  absl::MutexLock lock(&mutex_);
  free_.push_back(segment);
}

void SpillFile::Discard(absl::Span<const uint32_t> segments) {
  for (const uint32_t segment : segments) {
    fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, OffsetOf(segment, 0),
              static_cast<off_t>(segment_bytes_));
    Return(segment);
  }
}

absl::Status SpillFile::Write(uint32_t segment, size_t at, absl::string_view bytes) {
  if (WriteAllAt(fd_.get(), OffsetOf(segment, at), bytes)) return absl::OkStatus();
  return Failed("write", folder_);
}

bool SpillFile::ReadIfCached(const Piece& piece, char* to) const {
  const iovec all{.iov_base = to, .iov_len = piece.bytes};
  const off_t offset = OffsetOf(piece.segment, piece.at);
  const ssize_t got = preadv2(fd_.get(), &all, 1, offset, RWF_NOWAIT);
  if (got == static_cast<ssize_t>(piece.bytes)) return true;
  posix_fadvise(fd_.get(), offset, static_cast<off_t>(piece.bytes), POSIX_FADV_WILLNEED);
  return false;
}

absl::Status SpillFile::ReadAll(const Piece& piece, char* to) const {
  const int64_t got =
      ReadAt(fd_.get(), OffsetOf(piece.segment, piece.at), absl::MakeSpan(to, piece.bytes));
  if (got < 0) return Failed("read", folder_);
  if (got == static_cast<int64_t>(piece.bytes)) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("rows in ", folder_, " are gone"));
}

absl::Status SpillFile::Read(absl::Span<const Piece> pieces, const Take& take) const {
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<size_t> missing, ReadCached(pieces, take));
  return ReadMissing(pieces, missing, take);
}

absl::StatusOr<std::vector<size_t>> SpillFile::ReadCached(absl::Span<const Piece> pieces,
                                                          const Take& take) const {
  std::vector<size_t> missing;
  const auto buffer = std::make_unique_for_overwrite<char[]>(LargestOf(pieces));
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (ReadIfCached(pieces[i], buffer.get())) {
      CAPSTAN_RETURN_IF_ERROR(take(i, {buffer.get(), pieces[i].bytes}));
    } else {
      missing.push_back(i);
    }
  }
  return missing;
}

absl::Status SpillFile::ReadMissing(absl::Span<const Piece> pieces,
                                    absl::Span<const size_t> missing, const Take& take) const {
  if (missing.empty()) return absl::OkStatus();
  const auto buffer = std::make_unique_for_overwrite<char[]>(LargestOf(pieces));
  for (const size_t i : missing) {
    CAPSTAN_RETURN_IF_ERROR(ReadAll(pieces[i], buffer.get()));
    CAPSTAN_RETURN_IF_ERROR(take(i, {buffer.get(), pieces[i].bytes}));
  }
  return absl::OkStatus();
}

}  // namespace capstan::server
