#include "common/job/validate/validate_sparse_model.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/model/tables.h"
#include "common/sparse_models/model_of_job.h"
#include "common/types/job_limits.h"

namespace capstan {
namespace {

constexpr int kDimMax = kSparseDimMax;
constexpr int kRankMax = kDimMax - 1;  // A row also holds one weight.
constexpr int kHiddenLayersMax = 16;
constexpr int kUnitsMax = 65'536;
constexpr int kWindowMax = 1000;
constexpr int kNegativesMax = 1000;

using Units = google::protobuf::RepeatedField<int32_t>;

void ValidateLoss(v1::SparseModel::Loss loss, FieldChecker check) {
  if (v1::SparseModel::Loss_IsValid(loss)) return;
  check.Wrong("loss", absl::StrCat(static_cast<int>(loss)), "LOG_LOSS or SQUARED");
}

void ValidatePooling(v1::SparseModel::Pooling pooling, FieldChecker check) {
  if (v1::SparseModel::Pooling_IsValid(pooling)) return;
  check.Wrong("pooling", absl::StrCat(static_cast<int>(pooling)), "SUM or MEAN");
}

void ValidateUnits(const char* field, const Units& units, FieldChecker check) {
  if (units.size() > kHiddenLayersMax) {
    check.Wrong(field, absl::StrCat(units.size(), " layers"),
                absl::StrCat("at most ", kHiddenLayersMax));
  }
  for (int i = 0; i < units.size(); ++i) {
    check.IntegerBetween(absl::StrCat(field, "[", i, "]"), units[i], 1, kUnitsMax,
                         Presence::kExplicit);
  }
}

// Checks a number that may be left out.
void ValidateReal(const char* field, bool there, double value, const RealRange& range,
                  FieldChecker& check) {
  if (there) check.Real(field, value, range, Presence::kExplicit);
}

void Validate(const v1::SparseModel::LogisticRegression& model, FieldChecker check) {
  ValidateLoss(model.loss(), check);
  ValidateReal("bias", model.has_bias(), model.bias(), Finite(), check);
}

void Validate(const v1::SparseModel::FactorizationMachine& model, FieldChecker check) {
  check.IntegerBetween("rank", model.rank(), 1, kRankMax, Presence::kImplicit);
  ValidateLoss(model.loss(), check);
  ValidateReal("factor_std", model.has_factor_std(), model.factor_std(), AtLeast(0), check);
  ValidateReal("bias", model.has_bias(), model.bias(), Finite(), check);
}

void Validate(const v1::SparseModel::MatrixFactorization& model, FieldChecker check) {
  check.IntegerBetween("rank", model.rank(), 1, kRankMax, Presence::kImplicit);
  ValidateReal("factor_std", model.has_factor_std(), model.factor_std(), AtLeast(0), check);
  ValidateReal("mean", model.has_mean(), model.mean(), Finite(), check);
}

void Validate(const v1::SparseModel::DeepFactors& model, FieldChecker check) {
  check.IntegerBetween("rank", model.rank(), 1, kRankMax, Presence::kImplicit);
  if (model.hidden_size() == 0) check.Missing("hidden", "the units of each hidden layer");
  ValidateUnits("hidden", model.hidden(), check);
  ValidatePooling(model.pooling(), check);
  ValidateReal("factor_std", model.has_factor_std(), model.factor_std(), AtLeast(0), check);
  ValidateLoss(model.loss(), check);
}

void Validate(const v1::SparseModel::Dlrm& model, FieldChecker check) {
  check.IntegerBetween("dim", model.dim(), 1, kDimMax, Presence::kImplicit);
  ValidateUnits("bottom", model.bottom(), check);
  ValidateUnits("top", model.top(), check);
  ValidatePooling(model.pooling(), check);
  ValidateReal("embedding_std", model.has_embedding_std(), model.embedding_std(), AtLeast(0),
               check);
}

void Validate(const v1::SparseModel::SkipGram& model, FieldChecker check) {
  if (model.has_dim()) check.IntegerBetween("dim", model.dim(), 1, kDimMax, Presence::kExplicit);
  if (model.has_window()) {
    check.IntegerBetween("window", model.window(), 1, kWindowMax, Presence::kExplicit);
  }
  if (model.has_negatives()) {
    check.IntegerBetween("negatives", model.negatives(), 0, kNegativesMax, Presence::kExplicit);
  }
  ValidateReal("noise_power", model.has_noise_power(), model.noise_power(), Closed(0, 1), check);
}

}  // namespace

void ValidateRowLifetime(const v1::SparseModel::RowLifetime& rows, int32_t buckets,
                         FieldChecker check) {
  check.IntegerBetween("admit_after", rows.admit_after(), 0, kAdmitAfterMax, Presence::kExplicit);
  check.IntegerBetween("admission_keys", rows.admission_keys(), 0, kAdmissionKeysMax * buckets,
                       Presence::kExplicit);
  ValidateReal("admit_probability", rows.has_admit_probability(), rows.admit_probability(),
               OpenClosed(0, 1), check);
  check.IntegerBetween("evict_after_updates", rows.evict_after_updates(), 0, INT32_MAX,
                       Presence::kExplicit);
  const int64_t ttl = rows.ttl_seconds();
  if (ttl != 0 && (ttl < kTtlSecondsMin || ttl > kTtlSecondsMax)) {
    check.Wrong("ttl_seconds", absl::StrCat(ttl),
                absl::StrCat("0 or ", kTtlSecondsMin, " to ", kTtlSecondsMax));
  }
  check.IntegerBetween("rows_max", rows.rows_max(), 0, kSparseRowsMax, Presence::kExplicit);
  check.IntegerBetween("memory_mib", rows.memory_mib(), 0, kSparseMemoryMax >> 20,
                       Presence::kExplicit);
}

void ValidateSparseModel(const v1::SparseModel& model, FieldChecker check) {
  if (model.has_buckets()) {
    check.IntegerBetween("buckets", model.buckets(), 1, kSparseBucketsMax, Presence::kExplicit);
  }
  ValidateRowLifetime(model.rows(), BucketsOf(model), check.In("rows"));
  switch (model.kind_case()) {
    case v1::SparseModel::kLogisticRegression:
      return Validate(model.logistic_regression(), check.In("logistic_regression"));
    case v1::SparseModel::kFactorizationMachine:
      return Validate(model.factorization_machine(), check.In("factorization_machine"));
    case v1::SparseModel::kMatrixFactorization:
      return Validate(model.matrix_factorization(), check.In("matrix_factorization"));
    case v1::SparseModel::kWideAndDeep:
      return Validate(model.wide_and_deep(), check.In("wide_and_deep"));
    case v1::SparseModel::kDeepFm:
      return Validate(model.deep_fm(), check.In("deep_fm"));
    case v1::SparseModel::kDlrm:
      return Validate(model.dlrm(), check.In("dlrm"));
    case v1::SparseModel::kSkipGram:
      return Validate(model.skip_gram(), check.In("skip_gram"));
    case v1::SparseModel::KIND_NOT_SET:
      check.Missing("",
                    "one of logistic_regression, factorization_machine, matrix_factorization, "
                    "wide_and_deep, deep_fm, dlrm, skip_gram");
      return;
  }
}

}  // namespace capstan
