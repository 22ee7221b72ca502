#include "common/sparse_models/dlrm.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/sparse_models/example_check.h"
#include "common/sparse_models/losses.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

constexpr char kDlrm[] = "DLRM";
constexpr int32_t kDlrmFieldsMax = 4096;  // They have 8 million dot products.

absl::Status CheckOptions(const Dlrm::Options& options) {
  CAPSTAN_RETURN_IF_ERROR(CheckOption(kDlrm, "dense_columns",
                                      static_cast<double>(options.dense_columns), 0,
                                      static_cast<double>(kDenseColumnsMax)));
  CAPSTAN_RETURN_IF_ERROR(CheckOption(kDlrm, "fields", options.fields, 1, kDlrmFieldsMax));
  CAPSTAN_RETURN_IF_ERROR(CheckOption(kDlrm, "dim", static_cast<double>(options.dim), 1,
                                      static_cast<double>(kRankMax + 1)));
  CAPSTAN_RETURN_IF_ERROR(CheckWidths(kDlrm, "bottom", options.bottom));
  CAPSTAN_RETURN_IF_ERROR(CheckWidths(kDlrm, "top", options.top));
  CAPSTAN_RETURN_IF_ERROR(CheckOption(kDlrm, "embedding_std", options.embedding_std, 0,
                                      std::numeric_limits<float>::max()));
  if (options.dense_columns > 0) return absl::OkStatus();
  if (!options.bottom.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(kDlrm, ": a bottom MLP without dense columns, expected none"));
  }
  // One vector alone has no pairs.
  return CheckOption(kDlrm, "fields without dense columns", options.fields, 2, kDlrmFieldsMax);
}

std::vector<int64_t> Widths(int64_t in, const std::vector<int64_t>& hidden, int64_t out) {
  std::vector<int64_t> widths = {in};
  widths.insert(widths.end(), hidden.begin(), hidden.end());
  widths.push_back(out);
  return widths;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dlrm>> Dlrm::Create(const Options& options) {
  CAPSTAN_RETURN_IF_ERROR(CheckOptions(options));
  return std::unique_ptr<Dlrm>(new Dlrm(options));
}

Dlrm::Dlrm(const Options& options) : options_(options), vectors_(options.fields) {
  shape_.row_dim = options.dim;
  shape_.row_initial = {Initial::Kind::kNormal, options.embedding_std};
  if (options.dense_columns > 0) {
    ++vectors_;
    bottom_ = Mlp("bottom", Widths(options.dense_columns, options.bottom, options.dim),
                  Mlp::Output::kRelu, &shape_);
  }
  top_ = Mlp("top", Widths(passed() + dots(), options.top, 1), Mlp::Output::kLinear, &shape_);
  pool_ = FieldPool({.fields = options.fields,
                     .dim = options.dim,
                     .row_dim = options.dim,
                     .pooling = options.pooling});
  transposed_.resize(static_cast<size_t>(options.dim * vectors_));
}

absl::Status Dlrm::AppendKeys(const ExampleBatch& examples, const SampleDraws& draws,
                              std::vector<uint64_t>* keys) const {
  static_cast<void>(draws);  // Nothing is drawn.
  CAPSTAN_RETURN_IF_ERROR(CheckDenseColumns(kDlrm, examples, options_.dense_columns));
  CAPSTAN_RETURN_IF_ERROR(CheckFields(kDlrm, examples, options_.fields));
  keys->insert(keys->end(), examples.keys().begin(), examples.keys().end());
  return absl::OkStatus();
}

// Computes one row of products at a time, which is contiguous, so that the compiler can vectorise
// over it; each product is summed in ascending order of the column.
void Dlrm::Interact(const float* t, float* products) {
  const int64_t dim = options_.dim;
  for (int64_t i = 0; i < vectors_; ++i) {
    for (int64_t c = 0; c < dim; ++c) {
      transposed_[static_cast<size_t>(c * vectors_ + i)] = t[i * dim + c];
    }
  }
  for (int64_t i = 1; i < vectors_; ++i) {
    float* __restrict row = products + i * (i - 1) / 2;
    std::fill_n(row, i, 0.0f);
    for (int64_t c = 0; c < dim; ++c) {
      const float x = t[i * dim + c];
      const float* column = transposed_.data() + c * vectors_;
      for (int64_t j = 0; j < i; ++j) row[j] += x * column[j];
    }
  }
}

void Dlrm::InteractBackward(const float* t, const float* product_gradients,
                            float* t_gradient) const {
  const int64_t dim = options_.dim;
  for (int64_t i = 1; i < vectors_; ++i) {
    const float* row = product_gradients + i * (i - 1) / 2;
    float* __restrict of_i = t_gradient + i * dim;
    for (int64_t j = 0; j < i; ++j) {
      float* __restrict of_j = t_gradient + j * dim;
      for (int64_t c = 0; c < dim; ++c) {
        of_i[c] += row[j] * t[j * dim + c];
        of_j[c] += row[j] * t[i * dim + c];
      }
    }
  }
}

const float* Dlrm::Forward(const SparseInput& input) {
  const int64_t n = input.examples.count();
  const int64_t stride = vectors_ * options_.dim;
  const int64_t width = passed() + dots();
  assert(input.places.size() == input.examples.keys().size());
  assert(static_cast<int64_t>(input.dense.size()) == shape_.dense_count);
  t_.resize(static_cast<size_t>(n * stride));
  x_.resize(static_cast<size_t>(n * width));
  pool_.Forward(input, stride, t_.data() + passed());
  if (!bottom_.empty()) {
    const float* out = bottom_.Forward(n, input.examples.dense().data(), input.dense.data());
    for (int64_t i = 0; i < n; ++i) {
      std::copy_n(out + i * options_.dim, options_.dim, t_.data() + i * stride);
      std::copy_n(out + i * options_.dim, options_.dim, x_.data() + i * width);
    }
  }
  for (int64_t i = 0; i < n; ++i) {
    Interact(t_.data() + i * stride, x_.data() + i * width + passed());
  }
  return top_.Forward(n, x_.data(), input.dense.data());
}

SparseResult Dlrm::Train(const SparseInput& input, int64_t gradient_samples,
                         absl::Span<float> row_gradients, absl::Span<float> dense_gradients) {
  assert(gradient_samples >= 1 && row_gradients.size() == input.rows.size());
  assert(static_cast<int64_t>(dense_gradients.size()) == shape_.dense_count);
  const int64_t n = input.examples.count();
  const int64_t dim = options_.dim;
  const int64_t stride = vectors_ * dim;
  const int64_t width = passed() + dots();
  const SparseResult result =
      FindLosses(shape_.loss, Forward(input), input.examples.labels(), gradient_samples, &slopes_);
  std::fill(row_gradients.begin(), row_gradients.end(), 0.0f);
  std::fill(dense_gradients.begin(), dense_gradients.end(), 0.0f);

  x_gradients_.resize(x_.size());
  top_.Backward(n, x_.data(), input.dense.data(), slopes_.data(), x_gradients_.data(),
                dense_gradients.data());
  t_gradients_.assign(t_.size(), 0.0f);
  for (int64_t i = 0; i < n; ++i) {
    const float* gradient = x_gradients_.data() + i * width;
    std::copy_n(gradient, passed(), t_gradients_.data() + i * stride);  // t_0 was passed on.
    InteractBackward(t_.data() + i * stride, gradient + passed(), t_gradients_.data() + i * stride);
  }
  pool_.Backward(input, stride, t_gradients_.data() + passed(), row_gradients.data());
  if (bottom_.empty()) return result;
  bottom_gradients_.resize(static_cast<size_t>(n * dim));
  for (int64_t i = 0; i < n; ++i) {
    std::copy_n(t_gradients_.data() + i * stride, dim, bottom_gradients_.data() + i * dim);
  }
  bottom_.Backward(n, input.examples.dense().data(), input.dense.data(), bottom_gradients_.data(),
                   /*in_gradient=*/nullptr, dense_gradients.data());
  return result;
}

SparseResult Dlrm::Predict(const SparseInput& input, absl::Span<float> outputs) {
  assert(static_cast<int64_t>(outputs.size()) == input.examples.count());
  const float* logits = Forward(input);
  std::copy_n(logits, outputs.size(), outputs.begin());
  return FindLosses(shape_.loss, logits, input.examples.labels(), /*gradient_samples=*/1, &slopes_);
}

}  // namespace capstan
