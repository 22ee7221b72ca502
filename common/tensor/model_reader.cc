#include "common/tensor/model_reader.h"

#include <algorithm>
#include <filesystem>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/status_macros.h"
#include "common/tensor/model_file.h"

namespace capstan {
namespace {

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

}  // namespace

absl::StatusOr<ModelReader> ModelReader::Open(const std::string& folder) {
  CAPSTAN_ASSIGN_OR_RETURN(v1::ModelManifest manifest, ReadModelManifest(folder));
  if (!manifest.since_folder().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder, " has only what changed since the export in ", manifest.since_folder(),
                     ", expected an export of the whole model"));
  }
  CAPSTAN_RETURN_IF_ERROR(ModelFilesIn(folder).status());  // No file may be in another folder.
  CAPSTAN_ASSIGN_OR_RETURN(std::vector<NamedTensor> tensors,
                           ReadSafetensors(std::filesystem::path(folder) / kModelTensorsFile));
  return ModelReader(folder, std::move(manifest), std::move(tensors));
}

absl::StatusOr<std::vector<float>> ModelReader::ReadTable(const v1::TableSpec& table) const {
  std::vector<float> values(static_cast<size_t>(table.elements()));
  for (const v1::TensorSpec& tensor : table.tensors()) {
    const std::vector<int64_t> shape(tensor.shape().begin(), tensor.shape().end());
    const auto found =
        std::find_if(tensors_.begin(), tensors_.end(),
                     [&](const NamedTensor& there) { return there.name == tensor.name(); });
    if (found == tensors_.end() || found->shape != shape || !found->keys.empty()) {
      const std::string there =
          found == tensors_.end() ? "no such tensor" : absl::StrCat(ShapeText(found->shape));
      return absl::InvalidArgumentError(
          absl::StrCat(folder_, "/", kModelTensorsFile, ": ", tensor.name(), ": found ", there,
                       ", expected ", ShapeText(shape), " for this model and data"));
    }
    std::copy(found->values.begin(), found->values.end(), values.begin() + tensor.offset());
  }
  return values;
}

absl::StatusOr<MappedRows> ModelReader::OpenRows(const v1::TableSpec& table) const {
  const auto found = std::find_if(manifest_.tables().begin(), manifest_.tables().end(),
                                  [&](const v1::SavedTable& saved) {
                                    return saved.name() == table.name() && saved.has_rows();
                                  });
  if (found == manifest_.tables().end()) {
    return absl::InvalidArgumentError(absl::StrCat(folder_, "/", kModelManifestFile, ": table ",
                                                   table.name(), " has no rows there"));
  }
  const std::string path = std::filesystem::path(folder_) / found->rows().file();
  CAPSTAN_ASSIGN_OR_RETURN(MappedRows rows, MappedRows::Open(path));
  if (rows.dim() == table.sparse().dim()) return rows;
  return absl::InvalidArgumentError(absl::StrCat(path, ": rows of ", rows.dim(),
                                                 " floats, expected ", table.sparse().dim(),
                                                 " for this model and data"));
}

}  // namespace capstan
