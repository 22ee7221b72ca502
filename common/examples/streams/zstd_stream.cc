#include "common/examples/streams/zstd_stream.h"

#include <zstd.h>
#include <zstd_errors.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

constexpr int kWindowLogMax = 27;  // 128 MiB, zstd's own default.

struct ContextDeleter {
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

class ZstdStream final : public ByteStream {
 public:
  explicit ZstdStream(InputFile file)
      : file_(std::move(file)), buffer_(kStreamChunkBytes), context_(ZSTD_createDCtx()) {}

  absl::Status Start() {
    if (context_ == nullptr ||
        ZSTD_isError(ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax, kWindowLogMax))) {
      return absl::ResourceExhaustedError(absl::StrCat(file_.path(), ": zstd has no memory"));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<size_t> Read(absl::Span<char> room) override {
    ZSTD_outBuffer output = {room.data(), room.size(), 0};
    while (output.pos == 0) {
      // zstd must return the output that it holds back before it gets more input.
      if (input_.pos == input_.size && !output_held_) {
        CAPSTAN_RETURN_IF_ERROR(Refill());
        if (input_.size == 0) {
          if (between_frames_) return size_t{0};
          return Truncated();
        }
      }
      const size_t result = ZSTD_decompressStream(context_.get(), &output, &input_);
      if (ZSTD_isError(result)) return ErrorOf(result);
      between_frames_ = result == 0;
      output_held_ = !between_frames_ && output.pos == output.size;
    }
    return output.pos;
  }

 private:
  absl::Status Refill() {
    CAPSTAN_ASSIGN_OR_RETURN(const size_t got, file_.ReadAt(offset_, absl::MakeSpan(buffer_)));
    offset_ += static_cast<int64_t>(got);
    input_ = {buffer_.data(), got, 0};
    return absl::OkStatus();
  }

  absl::Status ErrorOf(size_t result) const {
    const ZSTD_ErrorCode code = ZSTD_getErrorCode(result);
    const bool no_memory =
        code == ZSTD_error_memory_allocation || code == ZSTD_error_frameParameter_windowTooLarge;
    const int64_t at = offset_ - static_cast<int64_t>(input_.size - input_.pos);
    const absl::string_view what =
        no_memory ? ": cannot decompress zstd data near byte " : ": corrupt zstd data near byte ";
    const absl::string_view expected =
        no_memory ? ", expected a window of at most 128 MiB" : ", expected a zstd file";
    return absl::Status(
        no_memory ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kDataLoss,
        absl::StrCat(file_.path(), what, at, ": ", ZSTD_getErrorName(result), expected));
  }

  absl::Status Truncated() const {
    return absl::DataLossError(absl::StrCat(file_.path(), ": truncated: the zstd data stops after ",
                                            offset_, " bytes, before the end of a frame"));
  }

  const InputFile file_;
  std::vector<char> buffer_;
  const std::unique_ptr<ZSTD_DCtx, ContextDeleter> context_;
  ZSTD_inBuffer input_ = {nullptr, 0, 0};
  int64_t offset_ = 0;           // The file's offset behind the bytes in buffer_.
  bool between_frames_ = false;  // A frame has ended; the next one, if any, is still to begin.
  bool output_held_ = false;     // The last call filled its room; zstd may have more.
};

}  // namespace

absl::StatusOr<std::unique_ptr<ByteStream>> OpenZstdStream(InputFile file) {
  auto stream = std::make_unique<ZstdStream>(std::move(file));
  CAPSTAN_RETURN_IF_ERROR(stream->Start());
  return stream;
}

}  // namespace capstan
