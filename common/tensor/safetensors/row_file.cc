#include "common/tensor/safetensors/row_file.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status/status_macros.h"
#include "common/storage/little_endian.h"
#include "common/tensor/safetensors/safetensors_header.h"

namespace capstan {
namespace {

static_assert(std::endian::native == std::endian::little,
              "keys and rows are written as they lie in memory");

std::string HeaderOf(int64_t rows, int64_t dim) {
  const int64_t keys_end = rows * BytesOf(Dtype::kU64);
  return EncodeSafetensorsHeader(
      {{.name = "keys", .shape = {rows}, .begin = 0, .end = keys_end, .dtype = Dtype::kU64},
       {.name = "rows",
        .shape = {rows, dim},
        .begin = keys_end,
        .end = keys_end + rows * dim * BytesOf(Dtype::kF32),
        .dtype = Dtype::kF32}});
}

// Returns the length and the header, as long as for the largest number of rows that a file could
// have.
std::string PaddedHeader(int64_t rows, int64_t dim) {
  const int64_t row_bytes = BytesOf(Dtype::kU64) + dim * BytesOf(Dtype::kF32);
  const size_t bytes = HeaderOf(std::numeric_limits<int64_t>::max() / row_bytes, dim).size();
  std::string header = HeaderOf(rows, dim);
  header.resize(bytes, ' ');
  std::string padded;
  PutLe64(bytes, &padded);
  return padded + header;
}

template <typename T>
absl::string_view BytesIn(absl::Span<const T> numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)};
}

bool IsPlain(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
}

absl::StatusOr<std::string> FileName(absl::string_view prefix, const std::string& table) {
  if (!table.empty() && std::all_of(table.begin(), table.end(), IsPlain)) {
    return absl::StrCat(prefix, table, ".safetensors");
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "table \"", table,
      "\": no file can be named by it, expected letters, digits, \"_\", \"-\", \".\""));
}

}  // namespace

absl::StatusOr<std::string> RowFileName(const std::string& table) {
  return FileName("rows-", table);
}

absl::StatusOr<std::string> RemovedFileName(const std::string& table) {
  return FileName("removed-", table);
}

absl::StatusOr<RowFileWriter> RowFileWriter::Create(const std::string& path, int64_t dim,
                                                    const Progress& progress) {
  CAPSTAN_ASSIGN_OR_RETURN(auto file, DurableFile::Create(path, progress));
  CAPSTAN_ASSIGN_OR_RETURN(auto row_bytes, DurableFile::Create(path + ".rows", progress));
  CAPSTAN_RETURN_IF_ERROR(file->Append(PaddedHeader(0, dim)));
  return RowFileWriter(dim, std::move(file), std::move(row_bytes));
}

absl::Status RowFileWriter::Add(absl::Span<const uint64_t> keys, absl::Span<const float> rows) {
  if (rows.size() != keys.size() * static_cast<size_t>(dim_)) {
    return absl::InvalidArgumentError(absl::StrCat(keys.size(), " keys with ", rows.size(),
                                                   " numbers: expected ", dim_, " for each"));
  }
  CAPSTAN_RETURN_IF_ERROR(file_->Append(BytesIn(keys)));
  CAPSTAN_RETURN_IF_ERROR(row_bytes_->Append(BytesIn(rows)));
  rows_ += static_cast<int64_t>(keys.size());
  return absl::OkStatus();
}

absl::Status RowFileWriter::Complete() {
  if (row_bytes_ == nullptr) return absl::OkStatus();
  CAPSTAN_RETURN_IF_ERROR(file_->AppendFrom(*row_bytes_));
  row_bytes_.reset();
  return file_->Overwrite(0, PaddedHeader(rows_, dim_));
}

absl::Status RowFileWriter::Finish() {
  CAPSTAN_RETURN_IF_ERROR(Complete());
  return file_->Commit();
}

}  // namespace capstan
