// ModelReader: reads an exported model (model_file.h) as the tables of its job.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_TENSOR_MODEL_READER_H_
#define CAPSTAN_COMMON_TENSOR_MODEL_READER_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tensor/safetensors/mapped_rows.h"
#include "common/tensor/safetensors/safetensors.h"
#include "proto/checkpoint.pb.h"
#include "proto/parameter_server.pb.h"

namespace capstan {

class ModelReader {
 public:
  // Reads the manifest and all dense tensors.
  // Errors: kNotFound         no manifest in `folder`, or its tensors are missing.
  //         kDataLoss         they are damaged.
  //         kInvalidArgument  its rows are a delta since another export.
  static absl::StatusOr<ModelReader> Open(const std::string& folder);

  const v1::ModelManifest& manifest() const { return manifest_; }

  // The values of a dense table, [table.elements()], each tensor at its place.
  // Errors: kInvalidArgument  the model has no such tensor, or one of another shape: names both.
  absl::StatusOr<std::vector<float>> ReadTable(const v1::TableSpec& table) const;

  // The rows of a sparse table.
  // Errors: kInvalidArgument  the model has no such table, or its rows have another length.
  //         else              those of MappedRows::Open.
  absl::StatusOr<MappedRows> OpenRows(const v1::TableSpec& table) const;

 private:
  ModelReader(std::string folder, v1::ModelManifest manifest, std::vector<NamedTensor> tensors)
      : folder_(std::move(folder)), manifest_(std::move(manifest)), tensors_(std::move(tensors)) {}

  std::string folder_;
  v1::ModelManifest manifest_;
  std::vector<NamedTensor> tensors_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_TENSOR_MODEL_READER_H_
