#include "common/job/spec/objective.h"

#include <catch2/catch.hpp>

namespace capstan::objective_test {
namespace {

TEST_CASE("Objective: what a job predicts follows from its model and loss", "[job]") {
  v1::Model model;
  CHECK(ObjectiveOf(model, {}) == Objective::kClasses);
  model.set_zoo("lenet");
  CHECK(ObjectiveOf(model, {}) == Objective::kClasses);
  v1::SparseModel& sparse = *model.mutable_sparse();
  const auto follows = [&](auto* kind) {
    CHECK(ObjectiveOf(model, {}) == Objective::kClicks);
    kind->set_loss(v1::SparseModel::SQUARED);
    CHECK(ObjectiveOf(model, {}) == Objective::kRatings);
  };
  follows(sparse.mutable_logistic_regression());
  follows(sparse.mutable_factorization_machine());
  follows(sparse.mutable_wide_and_deep());
  follows(sparse.mutable_deep_fm());
  sparse.mutable_dlrm();
  CHECK(ObjectiveOf(model, {}) == Objective::kClicks);
  sparse.mutable_matrix_factorization();
  CHECK(ObjectiveOf(model, {}) == Objective::kRatings);
  sparse.mutable_skip_gram();
  CHECK(ObjectiveOf(model, {}) == Objective::kWords);
}

TEST_CASE("Objective: examples without labels have no accuracy (issue 21)", "[job]") {
  v1::Model model;
  model.mutable_sparse()->mutable_logistic_regression();
  v1::Data data;
  data.set_format(v1::Data::COLUMNS);
  data.mutable_columns()->add_columns()->set_kind(v1::Column::CATEGORY);
  CHECK(ObjectiveOf(model, data) == Objective::kUnlabeled);
  CHECK_FALSE(HasAccuracy(Objective::kUnlabeled));
  data.mutable_columns()->add_columns()->set_kind(v1::Column::LABEL);
  CHECK(ObjectiveOf(model, data) == Objective::kClicks);
  data.mutable_columns()->mutable_columns()->RemoveLast();
  data.set_format(v1::Data::SVMLIGHT);  // Each line begins with its label.
  CHECK(ObjectiveOf(model, data) == Objective::kClicks);
}

}  // namespace
}  // namespace capstan::objective_test
