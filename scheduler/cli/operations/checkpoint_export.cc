#include "scheduler/cli/operations/checkpoint_export.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_part.h"
#include "common/checkpoint/manifest.h"
#include "common/model/tables.h"
#include "common/status/status_macros.h"
#include "common/tensor/model_file.h"
#include "common/tensor/safetensors/durable_file.h"
#include "common/tensor/safetensors/row_file.h"

namespace capstan::cli {
namespace {

static_assert(std::endian::native == std::endian::little, "checkpoints are little-endian");

struct DenseTable {
  int64_t version = std::numeric_limits<int64_t>::max();
  std::vector<float> values;
};

absl::Status DoesNotFit(const v1::CheckpointPart& part) {
  return absl::DataLossError(absl::StrCat(part.file(), ": does not have the numbers of its table"));
}

absl::Status TakeDense(const v1::CheckpointPart& part, const v1::ShardSnapshot& snapshot,
                       DenseTable* table) {
  const int64_t elements = part.element_end() - part.element_begin();
  if (snapshot.values().size() != static_cast<size_t>(elements) * sizeof(float)) {
    return DoesNotFit(part);
  }
  std::memcpy(table->values.data() + part.element_begin(), snapshot.values().data(),
              snapshot.values().size());
  table->version = std::min(table->version, part.version());
  return absl::OkStatus();
}

absl::Status TakeRows(const v1::CheckpointPart& part, const v1::ShardSnapshot& snapshot,
                      RowFileWriter& file, TableRows* table) {
  const auto dim = static_cast<size_t>(table->spec->sparse().dim());
  const std::string& bytes = snapshot.values();
  const size_t row_bytes = sizeof(uint64_t) + dim * sizeof(float);
  if (bytes.size() % row_bytes != 0) return DoesNotFit(part);
  std::vector<uint64_t> keys(bytes.size() / row_bytes);
  std::vector<float> rows(keys.size() * dim);
  const size_t key_bytes = keys.size() * sizeof(uint64_t);
  if (!keys.empty()) {
    std::memcpy(keys.data(), bytes.data(), key_bytes);
    std::memcpy(rows.data(), bytes.data() + key_bytes, bytes.size() - key_bytes);
  }
  table->bucket_versions.push_back(part.version());
  table->bucket_timelines.push_back(snapshot.state().incarnation_floor());
  return file.Add(keys, rows);
}

class Export {
 public:
  Export(Disk& disk, std::string folder, v1::CheckpointManifest manifest, std::string directory)
      : disk_(disk),
        folder_(std::move(folder)),
        manifest_(std::move(manifest)),
        directory_(std::move(directory)) {}

  absl::StatusOr<std::vector<std::string>> Run() {
    CAPSTAN_RETURN_IF_ERROR(MakeDirectories(directory_));
    for (const v1::TableSpec& table : manifest_.tables()) {
      CAPSTAN_RETURN_IF_ERROR(ValidateTable(table));
      CAPSTAN_RETURN_IF_ERROR(table.has_sparse() ? WriteRows(table) : ReadDense(table));
    }
    std::vector<TableValues> dense;
    for (const auto& [spec, table] : dense_) dense.push_back({spec, table.version, table.values});
    CAPSTAN_RETURN_IF_ERROR(
        WriteModelFiles(directory_, manifest_.job_id(), manifest_.spec(), dense, sparse_));
    return ModelFilesIn(directory_);
  }

 private:
  absl::Status ReadDense(const v1::TableSpec& spec) {
    auto& [unused_spec, table] = dense_.emplace_back(&spec, DenseTable{});
    table.values.resize(static_cast<size_t>(spec.elements()));
    return ForEachPart(spec, [&table](const auto& part, const v1::ShardSnapshot& snapshot) {
      return TakeDense(part, snapshot, &table);
    });
  }

  absl::Status WriteRows(const v1::TableSpec& spec) {
    CAPSTAN_ASSIGN_OR_RETURN(const std::string name, RowFileName(spec.name()));
    CAPSTAN_ASSIGN_OR_RETURN(
        RowFileWriter file,
        RowFileWriter::Create(std::filesystem::path(directory_) / name, spec.sparse().dim()));
    TableRows table{.spec = &spec};
    CAPSTAN_RETURN_IF_ERROR(
        ForEachPart(spec, [&](const auto& part, const v1::ShardSnapshot& snapshot) {
          return TakeRows(part, snapshot, file, &table);
        }));
    table.count = file.rows();
    table.version = *std::min_element(table.bucket_versions.begin(), table.bucket_versions.end());
    sparse_.push_back(std::move(table));
    return file.Finish();
  }

  template <typename Take>
  absl::Status ForEachPart(const v1::TableSpec& spec, const Take& take) {
    for (const v1::CheckpointPart& part : manifest_.parts()) {
      if (part.table() != spec.table()) continue;
      CAPSTAN_ASSIGN_OR_RETURN(const v1::ShardSnapshot snapshot,
                               ReadPart(disk_, folder_, manifest_.job_id(), part));
      CAPSTAN_RETURN_IF_ERROR(take(part, snapshot));
    }
    return absl::OkStatus();
  }

  Disk& disk_;
  const std::string folder_;
  const v1::CheckpointManifest manifest_;
  const std::string directory_;
  std::vector<std::pair<const v1::TableSpec*, DenseTable>> dense_;
  std::vector<TableRows> sparse_;
};

}  // namespace

absl::StatusOr<std::vector<std::string>> ExportCheckpoint(Disk& disk, const std::string& folder,
                                                          const std::string& directory) {
  CAPSTAN_ASSIGN_OR_RETURN(v1::CheckpointManifest manifest, ReadManifest(disk, folder));
  return Export(disk, folder, std::move(manifest), directory).Run();
}

}  // namespace capstan::cli
