#include "common/examples/streams/open_stream.h"

#include <cassert>
#include <utility>

#include "absl/strings/match.h"
#include "common/examples/streams/gzip_stream.h"
#include "common/examples/streams/input_file.h"
#include "common/examples/streams/zstd_stream.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

bool IsGzip(absl::string_view path) { return absl::EndsWith(path, ".gz"); }
bool IsZstd(absl::string_view path) { return absl::EndsWith(path, ".zst"); }

class PlainStream final : public ByteStream {
 public:
  PlainStream(InputFile file, int64_t offset) : file_(std::move(file)), offset_(offset) {}

  absl::StatusOr<size_t> Read(absl::Span<char> room) override {
    CAPSTAN_ASSIGN_OR_RETURN(const size_t got, file_.ReadAt(offset_, room));
    offset_ += static_cast<int64_t>(got);
    return got;
  }

 private:
  const InputFile file_;
  int64_t offset_;
};

}  // namespace

bool IsCompressed(absl::string_view path) { return IsGzip(path) || IsZstd(path); }

absl::StatusOr<std::unique_ptr<ByteStream>> OpenStream(const std::string& path, int64_t offset) {
  assert(offset >= 0 && (offset == 0 || !IsCompressed(path)));
  CAPSTAN_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  if (IsGzip(path)) return OpenGzipStream(std::move(file));
  if (IsZstd(path)) return OpenZstdStream(std::move(file));
  return std::make_unique<PlainStream>(std::move(file), offset);
}

}  // namespace capstan
