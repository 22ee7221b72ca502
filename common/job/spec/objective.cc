#include "common/job/spec/objective.h"

#include <algorithm>

#include "common/data/dataset.h"

namespace capstan {
namespace {

bool IsSquared(const v1::SparseModel& model) {
  switch (model.kind_case()) {
    case v1::SparseModel::kLogisticRegression:
      return model.logistic_regression().loss() == v1::SparseModel::SQUARED;
    case v1::SparseModel::kFactorizationMachine:
      return model.factorization_machine().loss() == v1::SparseModel::SQUARED;
    case v1::SparseModel::kWideAndDeep:
      return model.wide_and_deep().loss() == v1::SparseModel::SQUARED;
    case v1::SparseModel::kDeepFm:
      return model.deep_fm().loss() == v1::SparseModel::SQUARED;
    case v1::SparseModel::kMatrixFactorization:
      return true;
    case v1::SparseModel::kDlrm:
    case v1::SparseModel::kSkipGram:
    case v1::SparseModel::KIND_NOT_SET:
      break;
  }
  return false;
}

bool HasLabels(const v1::Columns& columns) {
  return std::any_of(columns.columns().begin(), columns.columns().end(),
                     [](const v1::Column& column) { return column.kind() == v1::Column::LABEL; });
}

Objective OfLayers(const v1::Model& model) {
  switch (LabelsOf(model)) {
    case LabelKind::kNumbers:
      return Objective::kNumbers;
    case LabelKind::kFlags:
      return Objective::kLabels;
    case LabelKind::kClasses:
      break;
  }
  return Objective::kClasses;
}

}  // namespace

Objective ObjectiveOf(const v1::Model& model, const v1::Data& data) {
  if (!model.has_sparse()) return OfLayers(model);
  if (model.sparse().has_skip_gram()) return Objective::kWords;
  if (data.format() == v1::Data::COLUMNS && !HasLabels(data.columns())) {
    return Objective::kUnlabeled;
  }
  return IsSquared(model.sparse()) ? Objective::kRatings : Objective::kClicks;
}

}  // namespace capstan
