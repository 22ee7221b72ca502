#include "server/log/frames/frame_batch.h"

#include "common/status/status_macros.h"
#include "common/storage/crc32c.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream.h"

namespace capstan::server {

// A message is written to this stream, which appends to the batch and borrows large fields.
class FrameBatch::Stream final : public google::protobuf::io::ZeroCopyOutputStream {
 public:
  explicit Stream(FrameBatch* batch) : batch_(batch), begin_(batch->bytes()) {}

  bool Next(void** data, int* size) override {
    const size_t at = batch_->own_.size();
    batch_->own_.resize(at + kPieceBytes);
    *data = &batch_->own_[at];
    *size = kPieceBytes;
    return true;
  }
  void BackUp(int count) override {
    batch_->own_.resize(batch_->own_.size() - static_cast<size_t>(count));
  }
  int64_t ByteCount() const override { return batch_->bytes() - begin_; }
  bool AllowsAliasing() const override { return true; }
  bool WriteAliasedRaw(const void* data, int size) override {
    const absl::string_view bytes(static_cast<const char*>(data), static_cast<size_t>(size));
    if (size < batch_->lent_bytes_min_) {
      batch_->own_.append(bytes.data(), bytes.size());
    } else {
      batch_->lent_.push_back({.at = batch_->own_.size(), .bytes = bytes});
      batch_->lent_bytes_ += bytes.size();
    }
    return true;
  }

 private:
  // It is small, because a field that does not fit comes in one piece, by WriteAliasedRaw.
  static constexpr int kPieceBytes = 64;

  FrameBatch* const batch_;
  const int64_t begin_;
};

template <typename Take>
absl::Status FrameBatch::ForPieces(size_t own_begin, size_t lent_begin, const Take& take) const {
  const absl::string_view own = own_;
  for (size_t i = lent_begin; i < lent_.size(); ++i) {
    if (lent_[i].at > own_begin) {
      CAPSTAN_RETURN_IF_ERROR(take(own.substr(own_begin, lent_[i].at - own_begin)));
    }
    CAPSTAN_RETURN_IF_ERROR(take(lent_[i].bytes));
    own_begin = lent_[i].at;
  }
  return own_begin < own.size() ? take(own.substr(own_begin)) : absl::OkStatus();
}

void FrameBatch::Append(const FrameHead& head, absl::string_view begin,
                        const google::protobuf::MessageLite* message) {
  const size_t own_begin = own_.size(), lent_begin = lent_.size();
  const size_t message_bytes = message == nullptr ? 0 : message->ByteSizeLong();
  BeginFrame(head, begin.size() + message_bytes, &own_);
  own_.append(begin.data(), begin.size());
  if (message != nullptr) {
    Stream stream(this);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.EnableAliasing(true);
    message->SerializeWithCachedSizes(&coded);
  }
  Crc32c crc;
  const auto add = [&crc](absl::string_view bytes) { return crc.Add(bytes), absl::OkStatus(); };
  ForPieces(own_begin, lent_begin, add).IgnoreError();
  EndFrame(crc, &own_);
}

absl::Status FrameBatch::WriteTo(WritableFile& file) const {
  return ForPieces(0, 0, [&file](absl::string_view bytes) { return file.Append(bytes); });
}

void FrameBatch::Clear() {
  own_.clear();
  lent_.clear();
  lent_bytes_ = 0;
}

}  // namespace capstan::server
