#include "common/tensor/initial_weights.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/model/initial_values.h"
#include "common/status/status_macros.h"
#include "common/storage/files/path_access.h"
#include "common/tensor/model_file.h"
#include "common/tensor/safetensors/safetensors.h"

namespace capstan {
namespace {

constexpr size_t kSentencesMax = 20;

using ByName = std::map<std::string, const NamedTensor*>;

template <typename Shape>
std::string ShapeText(const Shape& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// Returns why the tensor does not fit; empty if it does. `there` is null if the file does not have
// it.
std::string Misfit(const v1::TensorSpec& tensor, const NamedTensor* there) {
  const std::string expected =
      absl::StrCat(", expected ", ShapeText(tensor.shape()), " of F32, F16 or BF16");
  if (there == nullptr) {
    return absl::StrCat(tensor.name(), ": the file has no such tensor", expected);
  }
  if (!there->keys.empty()) {
    return absl::StrCat(tensor.name(), ": the file has whole numbers (U64)", expected);
  }
  if (std::equal(tensor.shape().begin(), tensor.shape().end(), there->shape.begin(),
                 there->shape.end())) {
    return "";
  }
  return absl::StrCat(tensor.name(), ": the file has ", ShapeText(there->shape), expected);
}

void Shorten(std::vector<std::string>& sentences) {
  if (sentences.size() <= kSentencesMax) return;
  const size_t more = sentences.size() - (kSentencesMax - 1);
  sentences.resize(kSentencesMax - 1);
  sentences.push_back(absl::StrCat("and ", more, " more tensors"));
}

// Takes the tensors of `table` out of `tensors`, those that fit into `values`; returns how many.
int TakeTable(const v1::TableSpec& table, ByName& tensors, std::vector<float>& values,
              std::vector<std::string>& left) {
  int taken = 0;
  for (const v1::TensorSpec& tensor : table.tensors()) {
    const auto found = tensors.find(tensor.name());
    const NamedTensor* there = found == tensors.end() ? nullptr : found->second;
    if (std::string misfit = Misfit(tensor, there); !misfit.empty()) {
      left.push_back(std::move(misfit));
    } else {
      std::copy(there->values.begin(), there->values.end(), values.begin() + tensor.offset());
      ++taken;
    }
    if (there != nullptr) tensors.erase(found);
  }
  return taken;
}

}  // namespace

absl::StatusOr<InitialWeights> ReadInitialWeights(const std::string& path,
                                                  absl::Span<const v1::TableSpec> tables,
                                                  uint64_t seed, WeightsFit fit) {
  struct stat status;
  const bool folder = StatPath(path, &status) == 0 && S_ISDIR(status.st_mode);
  const std::string file = folder ? absl::StrCat(path, "/", kModelTensorsFile) : path;
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<NamedTensor> read, ReadSafetensors(file));
  ByName tensors;
  for (const NamedTensor& tensor : read) tensors[tensor.name] = &tensor;
  InitialWeights weights;
  int taken = 0;
  for (const v1::TableSpec& table : tables) {
    std::vector<float>& values = weights.tables.emplace_back();
    if (table.has_sparse()) continue;  // It begins without rows.
    values.resize(static_cast<size_t>(table.elements()));
    if (fit == WeightsFit::kWhatFits) FillInitialValues(table, seed, 0, absl::MakeSpan(values));
    taken += TakeTable(table, tensors, values, weights.left);
  }
  for (const auto& [name, tensor] : tensors) {
    weights.left.push_back(absl::StrCat(name, ": the model has no such tensor, the file has ",
                                        ShapeText(tensor->shape)));
  }
  Shorten(weights.left);
  if (weights.left.empty() || (fit == WeightsFit::kWhatFits && taken > 0)) return weights;
  return absl::InvalidArgumentError(absl::StrCat(file,
                                                 fit == WeightsFit::kAll
                                                     ? " has other tensors than the model:\n"
                                                     : " has no tensor that fits the model:\n",
                                                 absl::StrJoin(weights.left, "\n")));
}

}  // namespace capstan
