#include "common/examples/streams/gzip_stream.h"

#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

constexpr Bytef kGzipFirstByte = 0x1f;
constexpr int kGzipWindowBits = 15 + 16;  // 15: the largest window; 16: a gzip header and trailer.

class GzipStream final : public ByteStream {
 public:
  explicit GzipStream(InputFile file) : file_(std::move(file)), input_(kStreamChunkBytes) {}
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;
  ~GzipStream() override {
    if (started_) inflateEnd(&stream_);
  }

  absl::Status Start() {
    if (inflateInit2(&stream_, kGzipWindowBits) != Z_OK) return NoMemory();
    started_ = true;
    return absl::OkStatus();
  }

  absl::StatusOr<size_t> Read(absl::Span<char> room) override {
    const size_t most = std::min<size_t>(room.size(), std::numeric_limits<uInt>::max());
    stream_.next_out = reinterpret_cast<Bytef*>(room.data());
    stream_.avail_out = static_cast<uInt>(most);
    while (stream_.avail_out == most) {
      CAPSTAN_RETURN_IF_ERROR(Refill());
      if (stream_.avail_in == 0) {
        if (between_members_) return size_t{0};
        return Truncated();
      }
      if (between_members_) CAPSTAN_RETURN_IF_ERROR(NextMember());
      CAPSTAN_RETURN_IF_ERROR(Inflate());
    }
    return most - stream_.avail_out;
  }

 private:
  absl::Status Refill() {
    if (stream_.avail_in > 0) return absl::OkStatus();
    CAPSTAN_ASSIGN_OR_RETURN(const size_t got, file_.ReadAt(offset_, absl::MakeSpan(input_)));
    offset_ += static_cast<int64_t>(got);
    stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
    stream_.avail_in = static_cast<uInt>(got);
    return absl::OkStatus();
  }

  absl::Status NextMember() {
    if (*stream_.next_in != kGzipFirstByte) {
      return absl::DataLossError(absl::StrCat(
          file_.path(), ": bytes that are no gzip data follow the compressed data at byte ",
          offset_ - stream_.avail_in, ", expected the end of the file"));
    }
    inflateReset(&stream_);
    between_members_ = false;
    return absl::OkStatus();
  }

  absl::Status Inflate() {
    const int result = inflate(&stream_, Z_NO_FLUSH);
    if (result == Z_STREAM_END) {
      between_members_ = true;
      return absl::OkStatus();
    }
    if (result == Z_OK || result == Z_BUF_ERROR) return absl::OkStatus();
    if (result == Z_MEM_ERROR) return NoMemory();
    return absl::DataLossError(absl::StrCat(
        file_.path(), ": corrupt gzip data near byte ", offset_ - stream_.avail_in, ": ",
        stream_.msg != nullptr ? stream_.msg : "unknown compression", ", expected a gzip file"));
  }

  absl::Status Truncated() const {
    return absl::DataLossError(absl::StrCat(file_.path(), ": truncated: the gzip data stops after ",
                                            offset_, " bytes, before its end mark"));
  }

  absl::Status NoMemory() const {
    return absl::ResourceExhaustedError(absl::StrCat(file_.path(), ": zlib has no memory"));
  }

  const InputFile file_;
  std::vector<char> input_;
  int64_t offset_ = 0;  // The file's offset behind the bytes in input_.
  bool started_ = false;
  bool between_members_ = false;  // A member has ended; the next one, if any, is still to begin.
  z_stream stream_ = {};
};

}  // namespace

absl::StatusOr<std::unique_ptr<ByteStream>> OpenGzipStream(InputFile file) {
  auto stream = std::make_unique<GzipStream>(std::move(file));
  CAPSTAN_RETURN_IF_ERROR(stream->Start());
  return stream;
}

}  // namespace capstan
