#include "common/tensor/model_file.h"

#include <google/protobuf/util/json_util.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/model/tables.h"
#include "common/status/status_macros.h"
#include "common/storage/file_name.h"
#include "common/storage/files/regular_file.h"
#include "common/tensor/safetensors/durable_file.h"
#include "common/tensor/safetensors/row_file.h"
#include "common/tensor/safetensors/safetensors.h"

namespace capstan {
namespace {

constexpr int64_t kManifestBytesMax = 256 << 20;

absl::Status CheckTable(const TableValues& table) {
  CAPSTAN_RETURN_IF_ERROR(ValidateTable(*table.spec));
  const auto count = static_cast<int64_t>(table.values.size());
  if (count == table.spec->elements()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("table \"", table.spec->name(), "\" has ", count,
                                                 " values, expected ", table.spec->elements()));
}

void AddTensors(const TableValues& table, std::vector<NamedTensorView>* tensors) {
  for (const v1::TensorSpec& tensor : table.spec->tensors()) {
    tensors->push_back({tensor.name(),
                        {tensor.shape().begin(), tensor.shape().end()},
                        table.values.subspan(static_cast<size_t>(tensor.offset()),
                                             static_cast<size_t>(ElementCount(tensor)))});
  }
}

absl::Status AddRows(const TableRows& table, v1::ModelManifest* manifest) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::string file, RowFileName(table.spec->name()));
  v1::SavedTable& saved = *manifest->add_tables();
  saved.set_name(table.spec->name());
  saved.set_elements(table.spec->elements());
  saved.set_version(table.version);
  saved.mutable_rows()->set_file(file);
  saved.mutable_rows()->set_count(table.count);
  saved.mutable_rows()->set_dim(table.spec->sparse().dim());
  saved.mutable_rows()->mutable_bucket_versions()->Assign(table.bucket_versions.begin(),
                                                          table.bucket_versions.end());
  saved.mutable_rows()->mutable_bucket_timelines()->Assign(table.bucket_timelines.begin(),
                                                           table.bucket_timelines.end());
  if (!table.removed.has_value()) return absl::OkStatus();
  CAPSTAN_ASSIGN_OR_RETURN(*saved.mutable_rows()->mutable_removed_file(),
                           RemovedFileName(table.spec->name()));
  saved.mutable_rows()->set_removed_count(*table.removed);
  return absl::OkStatus();
}

v1::ModelManifest MakeManifest(const std::string& job_id, const v1::JobSpec& job,
                               absl::Span<const TableValues> tables) {
  v1::ModelManifest manifest;
  manifest.set_format(2);
  manifest.set_job_id(job_id);
  *manifest.mutable_spec() = job;
  manifest.set_tensors_file(kModelTensorsFile);
  for (const TableValues& table : tables) {
    v1::SavedTable& saved = *manifest.add_tables();
    saved.set_name(table.spec->name());
    saved.set_elements(table.spec->elements());
    saved.set_version(table.version);
    for (const v1::TensorSpec& tensor : table.spec->tensors()) {
      v1::SavedTensor& out = *manifest.add_tensors();
      out.set_name(tensor.name());
      out.set_table(table.spec->name());
      *out.mutable_shape() = tensor.shape();
    }
  }
  return manifest;
}

absl::Status WriteManifest(const std::string& path, const v1::ModelManifest& manifest) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(manifest, &json, options);
  if (!status.ok()) {
    return absl::InternalError(
        absl::StrCat("cannot write the manifest as JSON: ", status.ToString()));
  }
  return WriteFileDurably(path, {json});
}

}  // namespace

absl::Status WriteModelFiles(const std::string& directory, const std::string& job_id,
                             const v1::JobSpec& job, absl::Span<const TableValues> tables,
                             absl::Span<const TableRows> sparse_tables,
                             const std::string& since_folder, const Progress& progress,
                             Incarnation exporter) {
  std::vector<NamedTensorView> tensors;
  for (const TableValues& table : tables) {
    CAPSTAN_RETURN_IF_ERROR(CheckTable(table));
    AddTensors(table, &tensors);
  }
  v1::ModelManifest manifest = MakeManifest(job_id, job, tables);
  manifest.set_since_folder(since_folder);
  manifest.set_incarnation(exporter.value());
  for (const TableRows& table : sparse_tables) {
    CAPSTAN_RETURN_IF_ERROR(AddRows(table, &manifest));
  }
  CAPSTAN_RETURN_IF_ERROR(MakeDirectories(directory));
  const std::filesystem::path folder(directory);
  CAPSTAN_RETURN_IF_ERROR(WriteSafetensors(folder / kModelTensorsFile, tensors, progress));
  return WriteManifest(folder / kModelManifestFile, manifest);
}

absl::Status WriteTableFile(const std::string& path, const TableValues& table) {
  CAPSTAN_RETURN_IF_ERROR(CheckTable(table));
  std::vector<NamedTensorView> tensors;
  AddTensors(table, &tensors);
  return WriteSafetensors(path, tensors);
}

absl::StatusOr<v1::ModelManifest> ReadModelManifest(const std::string& directory) {
  const std::string path = std::filesystem::path(directory) / kModelManifestFile;
  const absl::StatusOr<RegularFile> file = OpenRegularFile(path);
  if (absl::IsNotFound(file.status())) {
    return absl::NotFoundError(absl::StrCat(path, ": no such file"));
  }
  CAPSTAN_RETURN_IF_ERROR(file.status());
  if (file->bytes > kManifestBytesMax) {
    return absl::DataLossError(
        absl::StrCat(path, ": ", file->bytes, " bytes, expected at most ", kManifestBytesMax));
  }
  std::string json(static_cast<size_t>(file->bytes), '\0');
  CAPSTAN_ASSIGN_OR_RETURN(const size_t got, ReadFileAt(*file, path, 0, absl::MakeSpan(json)));
  json.resize(got);
  v1::ModelManifest manifest;
  const auto parsed = google::protobuf::util::JsonStringToMessage(json, &manifest);
  if (parsed.ok()) return manifest;
  return absl::DataLossError(
      absl::StrCat(path, " is no manifest, expected JSON of a capstan.v1.ModelManifest"));
}

absl::StatusOr<std::vector<std::string>> ModelFilesIn(const std::string& directory) {
  CAPSTAN_ASSIGN_OR_RETURN(const v1::ModelManifest manifest, ReadModelManifest(directory));
  std::vector<std::string> files = {kModelTensorsFile};
  for (const v1::SavedTable& table : manifest.tables()) {
    if (!table.has_rows()) continue;
    std::vector<std::string> names = {table.rows().file()};
    if (!table.rows().removed_file().empty()) names.push_back(table.rows().removed_file());
    for (const std::string& name : names) {
      if (!IsFileName(name)) {
        return absl::DataLossError(absl::StrCat(
            directory, "/", kModelManifestFile, ": table ", table.name(), " has its rows in \"",
            absl::CHexEscape(name), "\", expected a file of the same folder: ", kFileNameRule));
      }
      files.push_back(name);
    }
  }
  files.push_back(kModelManifestFile);
  return files;
}

}  // namespace capstan
