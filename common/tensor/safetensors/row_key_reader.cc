#include "common/tensor/safetensors/row_key_reader.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/storage/little_endian.h"
#include "common/tensor/safetensors/safetensors_header.h"

namespace capstan {
namespace {

static_assert(std::endian::native == std::endian::little, "keys are read as they lie in files");

constexpr int64_t kBlockKeys = 1 << 13;
constexpr int64_t kRowHeaderBytesMax = 1 << 16;

absl::Status TooShort(const std::string& path) {
  return absl::DataLossError(absl::StrCat(path, ": ends before all keys have come"));
}

// Says where the keys begin, and how many there are.
struct Keys {
  int64_t begin = 0;
  int64_t count = 0;
};

// Reads exactly `bytes` bytes from `offset` on.
absl::Status ReadAll(const RegularFile& file, const std::string& path, int64_t offset,
                     int64_t bytes, void* to) {
  const absl::Span<char> room(static_cast<char*>(to), static_cast<size_t>(bytes));
  CAPSTAN_ASSIGN_OR_RETURN(const size_t got, ReadFileAt(file, path, offset, room));
  return got == room.size() ? absl::OkStatus() : TooShort(path);
}

absl::StatusOr<Keys> FindKeys(const RegularFile& file, const std::string& path) {
  std::string length(kSafetensorsLengthBytes, '\0');
  CAPSTAN_RETURN_IF_ERROR(ReadAll(file, path, 0, kSafetensorsLengthBytes, length.data()));
  const auto header_bytes = static_cast<int64_t>(GetLe64(length, 0));
  if (header_bytes < 0 ||
      header_bytes > std::min(kRowHeaderBytesMax, file.bytes - kSafetensorsLengthBytes)) {
    return absl::DataLossError(absl::StrCat(path, ": a header of ", header_bytes,
                                            " bytes, expected that of a file of rows of ",
                                            file.bytes));
  }
  std::string header(static_cast<size_t>(header_bytes), '\0');
  CAPSTAN_RETURN_IF_ERROR(
      ReadAll(file, path, kSafetensorsLengthBytes, header_bytes, header.data()));
  const auto entries =
      DecodeSafetensorsHeader(header, file.bytes - kSafetensorsLengthBytes - header_bytes);
  if (!entries.ok()) return Annotate(entries.status(), path);
  for (const TensorEntry& entry : *entries) {
    if (entry.name != "keys" || entry.dtype != Dtype::kU64 || entry.shape.size() != 1) continue;
    return Keys{.begin = kSafetensorsLengthBytes + header_bytes + entry.begin,
                .count = entry.shape[0]};
  }
  return absl::DataLossError(absl::StrCat(path, ": has no \"keys\" of U64"));
}

}  // namespace

absl::StatusOr<RowKeyReader> RowKeyReader::Open(const std::string& path) {
  CAPSTAN_ASSIGN_OR_RETURN(RegularFile file, OpenRegularFile(path));
  CAPSTAN_ASSIGN_OR_RETURN(const Keys keys, FindKeys(file, path));
  RowKeyReader reader(path, std::move(file), keys.begin, keys.count);
  CAPSTAN_RETURN_IF_ERROR(reader.ReadBlock());
  return reader;
}

absl::Status RowKeyReader::Next() { return ++at_ < block_.size() ? absl::OkStatus() : ReadBlock(); }

absl::Status RowKeyReader::ReadBlock() {
  block_.resize(static_cast<size_t>(std::min(left_, kBlockKeys)));
  at_ = 0;
  left_ -= static_cast<int64_t>(block_.size());
  const auto bytes = static_cast<int64_t>(block_.size() * sizeof(uint64_t));
  const absl::Status status = ReadAll(file_, path_, offset_, bytes, block_.data());
  if (!status.ok()) block_.clear();
  offset_ += bytes;
  return status;
}

}  // namespace capstan
