#include "common/wire/message_checksum.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream.h>
#include <google/protobuf/unknown_field_set.h>
#include <google/protobuf/wire_format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/storage/crc32c.h"

namespace capstan {
namespace {

// Sums up what is written to it, but for `skipped` bytes behind the first `front`.
class ChecksumStream final : public google::protobuf::io::ZeroCopyOutputStream {
 public:
  ChecksumStream(size_t front, size_t skipped) : front_left_(front), skipped_left_(skipped) {}

  bool Next(void** data, int* size) override {
    Sum();
    *data = buffer_.data();
    *size = static_cast<int>(buffer_.size());
    used_ = buffer_.size();
    count_ += *size;
    return true;
  }
  void BackUp(int count) override {
    used_ -= static_cast<size_t>(count);
    count_ -= count;
  }
  int64_t ByteCount() const override { return count_; }
  bool AllowsAliasing() const override { return true; }
  bool WriteAliasedRaw(const void* data, int size) override {
    Sum();
    Add({static_cast<const char*>(data), static_cast<size_t>(size)});
    count_ += size;
    return true;
  }

  uint32_t Finish() {
    Sum();
    return crc_.value();
  }

 private:
  void Sum() { Add({buffer_.data(), std::exchange(used_, 0)}); }
  void Add(absl::string_view bytes) {
    const absl::string_view front = bytes.substr(0, front_left_);
    crc_.Add(front);
    front_left_ -= front.size();
    bytes.remove_prefix(front.size());
    const size_t skipped = std::min(skipped_left_, bytes.size());
    skipped_left_ -= skipped;
    crc_.Add(bytes.substr(skipped));
  }

  std::array<char, 4096> buffer_;
  size_t used_ = 0;  // Bytes of the buffer that are not summed up.
  int64_t count_ = 0;
  size_t front_left_;    // Bytes to come that are in front of the skipped ones,
  size_t skipped_left_;  // and skipped bytes to come.
  Crc32c crc_;
};

}  // namespace

uint32_t ChecksumOf(const google::protobuf::Message& message, size_t skipped) {
  const size_t behind = google::protobuf::internal::WireFormat::ComputeUnknownFieldsSize(
      message.GetReflection()->GetUnknownFields(message));
  ChecksumStream stream(message.ByteSizeLong() - behind - skipped, skipped);
  {
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.EnableAliasing(true);
    message.SerializeWithCachedSizes(&coded);
  }
  return stream.Finish();
}

absl::Status CompareChecksums(absl::string_view what, uint32_t computed, uint32_t expected) {
  if (computed == expected) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      what, absl::StrFormat(": its bytes have the checksum %08x, expected %08x: they were damaged "
                            "on their way",
                            computed, expected)));
}

absl::Status MissingChecksum(absl::string_view what) {
  return absl::DataLossError(absl::StrCat(what, ": it has no checksum, expected one"));
}

}  // namespace capstan
