#include "common/data/file_reader.h"

#include <zlib.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/data/expansion.h"
#include "common/status/status_macros.h"
#include "common/storage/files/regular_file.h"

namespace capstan {
namespace {

constexpr size_t kChunkBytes = 256 * 1024;
constexpr uint8_t kGzipFirstByte = 0x1f;
constexpr int kGzipWindowBits = 15 + 16;  // 15: the largest window; 16: a gzip header and trailer.

absl::Status TooLarge(const std::string& path, int64_t bytes_max) {
  return absl::DataLossError(
      absl::StrCat(path, ": holds more than the ", bytes_max, " bytes expected at most"));
}

// An open file that is read from front to back.
class InputFile {
 public:
  static absl::StatusOr<InputFile> Open(const std::string& path) {
    CAPSTAN_ASSIGN_OR_RETURN(RegularFile file, OpenRegularFile(path));
    return InputFile(path, std::move(file));
  }

  int64_t bytes() const { return file_.bytes; }  // The file's size when it was opened.

  // Fills `buffer` from the file. It returns fewer bytes only at the end of the file.
  absl::StatusOr<size_t> Read(absl::Span<uint8_t> buffer) {
    const absl::Span<char> room(reinterpret_cast<char*>(buffer.data()), buffer.size());
    CAPSTAN_ASSIGN_OR_RETURN(const size_t got, ReadFileAt(file_, path_, offset_, room));
    offset_ += static_cast<int64_t>(got);
    return got;
  }

 private:
  InputFile(std::string path, RegularFile file) : path_(std::move(path)), file_(std::move(file)) {}

  std::string path_;
  RegularFile file_;
  int64_t offset_ = 0;  // The begin of the next Read.
};

absl::StatusOr<std::vector<uint8_t>> ReadPlain(const std::string& path, InputFile& file,
                                               int64_t bytes_max) {
  if (file.bytes() > bytes_max) return TooLarge(path, bytes_max);
  std::vector<uint8_t> bytes(static_cast<size_t>(file.bytes()));
  CAPSTAN_ASSIGN_OR_RETURN(const size_t got, file.Read(absl::MakeSpan(bytes)));
  bytes.resize(got);  // If the file has shrunk meanwhile, the format's checks report it.
  return bytes;
}

// Decompresses a gzip file member by member.
class Inflater {
 public:
  Inflater(const std::string& path, InputFile& file, int64_t bytes_max)
      : path_(path),
        file_(file),
        bytes_max_(static_cast<size_t>(DecompressedBytesMax(file.bytes(), bytes_max))),
        by_expansion_(static_cast<int64_t>(bytes_max_) < bytes_max),
        input_(kChunkBytes) {}
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() {
    if (started_) inflateEnd(&stream_);
  }

  absl::StatusOr<std::vector<uint8_t>> Run() {
    if (inflateInit2(&stream_, kGzipWindowBits) != Z_OK) {
      return absl::ResourceExhaustedError(absl::StrCat(path_, ": zlib has no memory to start"));
    }
    started_ = true;
    while (true) {
      CAPSTAN_RETURN_IF_ERROR(InflateMember());
      CAPSTAN_RETURN_IF_ERROR(Refill());
      if (stream_.avail_in == 0) break;  // The file ends between two members.
      if (*stream_.next_in != kGzipFirstByte) return TrailingBytes();
      inflateReset(&stream_);
    }
    output_.resize(filled_);
    return std::move(output_);
  }

 private:
  absl::Status Refill() {
    if (stream_.avail_in > 0) return absl::OkStatus();
    CAPSTAN_ASSIGN_OR_RETURN(const size_t got, file_.Read(absl::MakeSpan(input_)));
    compressed_bytes_ += got;
    stream_.next_in = input_.data();
    stream_.avail_in = static_cast<uInt>(got);
    return absl::OkStatus();
  }

  // Makes room for at least one byte of output. The output may grow one byte above bytes_max, which
  // shows that it does not fit.
  absl::Status Grow() {
    if (filled_ > bytes_max_) return OverBound();
    if (filled_ == output_.size()) {
      output_.resize(std::min(std::max(2 * output_.size(), kChunkBytes), bytes_max_ + 1));
    }
    const size_t room = std::min(output_.size() - filled_, kChunkBytes);
    stream_.next_out = output_.data() + filled_;
    stream_.avail_out = static_cast<uInt>(room);
    return absl::OkStatus();
  }

  absl::Status InflateMember() {
    while (true) {
      CAPSTAN_RETURN_IF_ERROR(Refill());
      if (stream_.avail_in == 0) {
        return absl::DataLossError(absl::StrCat(path_, ": truncated: the gzip data stops after ",
                                                compressed_bytes_, " bytes (", filled_,
                                                " decompressed), before its end mark"));
      }
      CAPSTAN_RETURN_IF_ERROR(Grow());
      const size_t room = stream_.avail_out;
      const int result = inflate(&stream_, Z_NO_FLUSH);
      filled_ += room - stream_.avail_out;
      if (filled_ > bytes_max_) return OverBound();
      if (result == Z_STREAM_END) return absl::OkStatus();
      if (result == Z_MEM_ERROR) {
        return absl::ResourceExhaustedError(absl::StrCat(path_, ": zlib has no memory to go on"));
      }
      if (result != Z_OK && result != Z_BUF_ERROR) return Corrupt();
    }
  }

  absl::Status OverBound() const {
    if (!by_expansion_) return TooLarge(path_, static_cast<int64_t>(bytes_max_));
    return absl::DataLossError(absl::StrCat(
        path_, ": its ", file_.bytes(), " bytes are more than ", bytes_max_,
        " decompressed, expected at most ", kExpansionMax, " times as many, or ",
        kAnyExpansionBytes, "; a file that is so on purpose can be decompressed beforehand"));
  }

  absl::Status Corrupt() const {
    return absl::DataLossError(absl::StrCat(
        path_, ": corrupt gzip data near byte ", compressed_bytes_ - stream_.avail_in, ": ",
        stream_.msg != nullptr ? stream_.msg : "unknown compression", ", expected a gzip file"));
  }

  absl::Status TrailingBytes() const {
    return absl::DataLossError(
        absl::StrCat(path_, ": bytes that are no gzip data follow the compressed data at byte ",
                     compressed_bytes_ - stream_.avail_in, ", expected the end of the file"));
  }

  const std::string& path_;
  InputFile& file_;
  const size_t bytes_max_;
  const bool by_expansion_;  // bytes_max_ is that of the file's compression.
  std::vector<uint8_t> input_;
  std::vector<uint8_t> output_;
  size_t filled_ = 0;            // Bytes of output_ that are filled.
  size_t compressed_bytes_ = 0;  // Compressed bytes read so far.
  bool started_ = false;
  z_stream stream_ = {};
};

}  // namespace

absl::StatusOr<std::vector<uint8_t>> ReadDataFile(const std::string& path, int64_t bytes_max) {
  CAPSTAN_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  if (!absl::EndsWith(path, ".gz")) return ReadPlain(path, file, bytes_max);
  return Inflater(path, file, bytes_max).Run();
}

}  // namespace capstan
