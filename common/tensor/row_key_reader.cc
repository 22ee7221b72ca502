#include "common/tensor/row_key_reader.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/storage/little_endian.h"
#include "common/tensor/safetensors_header.h"

namespace capstan {
namespace {

static_assert(std::endian::native == std::endian::little, "keys are read as they lie in files");

constexpr int64_t kBlockKeys = 1 << 13;
constexpr int64_t kHeaderBytesMax = 1 << 16;
constexpr int64_t kLengthBytes = 8;

absl::Status TooShort(const std::string& path) {
  return absl::DataLossError(absl::StrCat(path, ": ends before all keys have come"));
}

// Says where the keys begin, and how many there are.
struct Keys {
  int64_t begin = 0;
  int64_t count = 0;
};

absl::StatusOr<Keys> FindKeys(std::ifstream& file, const std::string& path) {
  file.seekg(0, std::ios::end);
  const auto bytes = static_cast<int64_t>(file.tellg());
  file.seekg(0);
  std::string length(kLengthBytes, '\0');
  if (!file.read(length.data(), kLengthBytes)) return TooShort(path);
  const auto header_bytes = static_cast<int64_t>(GetLe64(length, 0));
  if (header_bytes < 0 || header_bytes > std::min(kHeaderBytesMax, bytes - kLengthBytes)) {
    return absl::DataLossError(absl::StrCat(path, ": a header of ", header_bytes,
                                            " bytes, expected that of a file of rows of ", bytes));
  }
  std::string header(static_cast<size_t>(header_bytes), '\0');
  if (!file.read(header.data(), header_bytes)) return TooShort(path);
  const auto entries = DecodeSafetensorsHeader(header, bytes - kLengthBytes - header_bytes);
  if (!entries.ok()) return Annotate(entries.status(), path);
  for (const TensorEntry& entry : *entries) {
    if (entry.name != "keys" || entry.dtype != Dtype::kU64 || entry.shape.size() != 1) continue;
    return Keys{.begin = kLengthBytes + header_bytes + entry.begin, .count = entry.shape[0]};
  }
  return absl::DataLossError(absl::StrCat(path, ": has no \"keys\" of U64"));
}

}  // namespace

absl::StatusOr<RowKeyReader> RowKeyReader::Open(const std::string& path) {
  auto file = std::make_unique<std::ifstream>(path, std::ios::binary);
  if (!*file) return absl::NotFoundError(absl::StrCat(path, ": cannot be opened"));
  CAPSTAN_ASSIGN_OR_RETURN(const Keys keys, FindKeys(*file, path));
  file->seekg(keys.begin);
  RowKeyReader reader(path, std::move(file), keys.count);
  CAPSTAN_RETURN_IF_ERROR(reader.ReadBlock());
  return reader;
}

absl::Status RowKeyReader::Next() { return ++at_ < block_.size() ? absl::OkStatus() : ReadBlock(); }

absl::Status RowKeyReader::ReadBlock() {
  block_.resize(static_cast<size_t>(std::min(left_, kBlockKeys)));
  at_ = 0;
  left_ -= static_cast<int64_t>(block_.size());
  const auto bytes = static_cast<std::streamsize>(block_.size() * sizeof(uint64_t));
  if (bytes == 0 || file_->read(reinterpret_cast<char*>(block_.data()), bytes)) {
    return absl::OkStatus();
  }
  block_.clear();
  return TooShort(path_);
}

}  // namespace capstan
