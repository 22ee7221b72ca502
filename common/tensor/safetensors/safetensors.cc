#include "common/tensor/safetensors/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/storage/files/regular_file.h"
#include "common/tensor/safetensors/durable_file.h"
#include "common/tensor/safetensors/safetensors_header.h"
#include "common/wire/number_format.h"

namespace capstan {
namespace {

static_assert(std::endian::native == std::endian::little,
              "values are written as they lie in memory");

constexpr int64_t kHeaderBytesMax = 100'000'000;  // The format's own implementation has it.

absl::Status CheckTensor(const NamedTensorView& tensor) {
  const auto values = static_cast<int64_t>(tensor.values.size());
  int64_t count = 1;
  for (const int64_t d : tensor.shape) {
    if (d < 0) count = -1;
    if (count > 0) count = d > values / count ? (d == 0 ? 0 : -1) : count * d;
  }
  if (count == values) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("tensor \"", tensor.name, "\" has ", values,
                                                 " values, expected as many as its shape [",
                                                 absl::StrJoin(tensor.shape, ","), "] holds"));
}

absl::StatusOr<std::vector<TensorEntry>> MakeEntries(absl::Span<const NamedTensorView> tensors) {
  std::vector<TensorEntry> entries;
  std::set<std::string> names;
  int64_t end = 0;
  for (const NamedTensorView& tensor : tensors) {
    if (tensor.name.empty() || tensor.name == "__metadata__" || !names.insert(tensor.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor name \"", tensor.name,
                       "\": expected one that is not empty, reserved or repeated"));
    }
    CAPSTAN_RETURN_IF_ERROR(CheckTensor(tensor));
    const auto bytes = static_cast<int64_t>(tensor.values.size() * sizeof(float));
    entries.push_back({tensor.name, tensor.shape, end, end + bytes});
    end += bytes;
  }
  return entries;
}

// Reads a file from front to back. The caller adds the path to its errors.
class FileReader {
 public:
  static absl::StatusOr<FileReader> Open(const std::string& path) {
    CAPSTAN_ASSIGN_OR_RETURN(RegularFile file, OpenRegularFile(path));
    return FileReader(std::move(file));
  }
  int64_t size() const { return file_.bytes; }
  absl::Status Read(void* to, int64_t bytes) {
    const absl::Span<char> room(static_cast<char*>(to), static_cast<size_t>(bytes));
    CAPSTAN_ASSIGN_OR_RETURN(const size_t got, ReadFileAt(file_, "the file", offset_, room));
    if (got < room.size()) return absl::DataLossError("the file ends early");
    offset_ += bytes;
    return absl::OkStatus();
  }

 private:
  explicit FileReader(RegularFile file) : file_(std::move(file)) {}

  RegularFile file_;
  int64_t offset_ = 0;  // The begin of the next Read.
};

absl::Status ReadNumbers(FileReader& file, Dtype dtype, absl::Span<float> values) {
  const auto bytes = static_cast<int64_t>(values.size()) * BytesOf(dtype);
  if (dtype == Dtype::kF32) return file.Read(values.data(), bytes);
  std::string narrow(static_cast<size_t>(bytes), '\0');
  CAPSTAN_RETURN_IF_ERROR(file.Read(narrow.data(), bytes));
  const NumberFormat format = dtype == Dtype::kF16 ? NumberFormat::kFp16 : NumberFormat::kBf16;
  DecodeNumbers(format, narrow.data(), values);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<NamedTensor>> ReadTensors(FileReader& file) {
  if (file.size() < kSafetensorsLengthBytes) {
    return absl::DataLossError(absl::StrCat("the file has ", file.size(),
                                            " bytes, expected at least ", kSafetensorsLengthBytes));
  }
  uint64_t header_bytes = 0;
  CAPSTAN_RETURN_IF_ERROR(file.Read(&header_bytes, kSafetensorsLengthBytes));
  const auto header_bytes_max =
      static_cast<uint64_t>(std::min(kHeaderBytesMax, file.size() - kSafetensorsLengthBytes));
  if (header_bytes > header_bytes_max) {
    return absl::DataLossError(
        absl::StrCat("the header's length is out of range, expected at most ", header_bytes_max));
  }
  std::string header(header_bytes, '\0');
  CAPSTAN_RETURN_IF_ERROR(file.Read(header.data(), static_cast<int64_t>(header_bytes)));
  const int64_t data_bytes =
      file.size() - kSafetensorsLengthBytes - static_cast<int64_t>(header_bytes);
  CAPSTAN_ASSIGN_OR_RETURN(std::vector<TensorEntry> entries,
                           DecodeSafetensorsHeader(header, data_bytes));
  std::vector<NamedTensor> tensors;
  for (TensorEntry& entry : entries) {  // They are ordered by place, without gaps.
    NamedTensor& tensor = tensors.emplace_back();
    tensor.name = std::move(entry.name);
    tensor.shape = std::move(entry.shape);
    const int64_t bytes = entry.end - entry.begin;
    const auto count = static_cast<size_t>(bytes / BytesOf(entry.dtype));
    if (entry.dtype == Dtype::kU64) {
      tensor.keys.resize(count);
      CAPSTAN_RETURN_IF_ERROR(file.Read(tensor.keys.data(), bytes));
    } else {
      tensor.values.resize(count);
      CAPSTAN_RETURN_IF_ERROR(ReadNumbers(file, entry.dtype, absl::MakeSpan(tensor.values)));
    }
  }
  return tensors;
}

}  // namespace

absl::Status WriteSafetensors(const std::string& path, absl::Span<const NamedTensorView> tensors,
                              const Progress& progress) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<TensorEntry> entries, MakeEntries(tensors));
  const std::string header = EncodeSafetensorsHeader(entries);
  const uint64_t header_bytes = header.size();
  char length[kSafetensorsLengthBytes];
  std::memcpy(length, &header_bytes, kSafetensorsLengthBytes);
  std::vector<absl::string_view> parts = {absl::string_view(length, kSafetensorsLengthBytes),
                                          header};
  for (const NamedTensorView& tensor : tensors) {
    parts.emplace_back(reinterpret_cast<const char*>(tensor.values.data()),
                       tensor.values.size() * sizeof(float));
  }
  return WriteFileDurably(path, parts, progress);
}

absl::StatusOr<std::vector<NamedTensor>> ReadSafetensors(const std::string& path) {
  CAPSTAN_ASSIGN_OR_RETURN(FileReader file, FileReader::Open(path));
  absl::StatusOr<std::vector<NamedTensor>> tensors = ReadTensors(file);
  if (!tensors.ok()) return Annotate(tensors.status(), path);
  return tensors;
}

}  // namespace capstan
