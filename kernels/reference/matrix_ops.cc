// Fully connected, element-wise, normalisation of positions, loss and embedding ops. A null bias
// or dbias means that there is none.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "common/random/philox.h"
#include "kernels/activation.h"
#include "kernels/reference/reference_ops.h"

namespace capstan::kernels::reference {
namespace {

double Sigmoid(double y) { return 1.0 / (1.0 + std::exp(-y)); }

// log(1 + exp(y)). The argument of exp is never positive, so nothing overflows.
double SoftPlus(double y) { return std::max(y, 0.0) + std::log1p(std::exp(-std::fabs(y))); }

double LossOf(const OpDesc& d, double y, double t, double weight) {
  const double error = y - t;
  const double parameter = double{d.loss_parameter};
  switch (d.loss) {
    case OutputLoss::kSquared:
      return error * error;
    case OutputLoss::kHuber:
      return std::fabs(error) <= parameter ? error * error / 2
                                           : parameter * (std::fabs(error) - parameter / 2);
    case OutputLoss::kQuantile:
      return error < 0 ? -parameter * error : (1 - parameter) * error;
    case OutputLoss::kSigmoid:
      return weight * t * SoftPlus(-y) + (1 - t) * SoftPlus(y);
  }
  return 0;
}

double SlopeOf(const OpDesc& d, double y, double t, double weight) {
  const double error = y - t;
  const double parameter = double{d.loss_parameter};
  switch (d.loss) {
    case OutputLoss::kSquared:
      return 2 * error;
    case OutputLoss::kHuber:
      return std::clamp(error, -parameter, parameter);
    case OutputLoss::kQuantile:
      return error == 0 ? 0 : error < 0 ? -parameter : 1 - parameter;
    case OutputLoss::kSigmoid:
      return (1 - t) * Sigmoid(y) - weight * t * Sigmoid(-y);
  }
  return 0;
}

// The probability that a standard normal variable is at most x.
double NormalBelow(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

double NormalDensity(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0)); }

double ActivatedBy(Activation activation, double x) {
  switch (activation) {
    case Activation::kGelu:
      return x * NormalBelow(x);
    case Activation::kSilu:
      return x * Sigmoid(x);
    case Activation::kTanh:
      return std::tanh(x);
    case Activation::kSigmoid:
      return Sigmoid(x);
  }
  return std::numeric_limits<double>::quiet_NaN();
}

double SlopeOf(Activation activation, double x) {
  switch (activation) {
    case Activation::kGelu:
      return NormalBelow(x) + x * NormalDensity(x);
    case Activation::kSilu:
      return Sigmoid(x) * (1 + x * Sigmoid(-x));
    case Activation::kTanh:
      return 1 / (std::cosh(x) * std::cosh(x));
    case Activation::kSigmoid:
      return Sigmoid(x) * Sigmoid(-x);
  }
  return std::numeric_limits<double>::quiet_NaN();
}

// Returns an element of the output of an element-wise op; of another op, NaN.
double ElementOf(const OpDesc& d, double a, double b) {
  switch (d.kind) {
    case OpKind::kReluForward:
      return a < 0 ? 0 : a;
    case OpKind::kReluBackward:
      return a > 0 ? b : 0;
    case OpKind::kActivationForward:
      return ActivatedBy(d.activation, a);
    case OpKind::kActivationBackward:
      return b * SlopeOf(d.activation, a);
    case OpKind::kAdd:
      return a + b;
    default:
      return std::numeric_limits<double>::quiet_NaN();
  }
}

double WeightOf(const float* weights, int64_t i) {
  return weights == nullptr ? 1.0 : double{weights[i]};
}

void FullyConnectedForward(const OpDesc& d, const float* x, const float* weight, const float* bias,
                           float* y) {
  for (int64_t n = 0; n < d.n; ++n) {
    for (int64_t o = 0; o < d.out_c; ++o) {
      double sum = bias == nullptr ? 0.0 : double{bias[o]};
      for (int64_t c = 0; c < d.c; ++c) sum += double{x[n * d.c + c]} * double{weight[o * d.c + c]};
      if (d.fuse_relu && sum < 0.0) sum = 0.0;
      y[n * d.out_c + o] = static_cast<float>(sum);
    }
  }
}

void FullyConnectedBackwardData(const OpDesc& d, const float* dy, const float* weight, float* dx) {
  for (int64_t n = 0; n < d.n; ++n) {
    for (int64_t c = 0; c < d.c; ++c) {
      double sum = 0.0;
      for (int64_t o = 0; o < d.out_c; ++o) {
        sum += double{dy[n * d.out_c + o]} * double{weight[o * d.c + c]};
      }
      dx[n * d.c + c] = static_cast<float>(sum);
    }
  }
}

void FullyConnectedBackwardWeights(const OpDesc& d, const float* x, const float* dy, float* dweight,
                                   float* dbias) {
  for (int64_t o = 0; o < d.out_c; ++o) {
    for (int64_t c = 0; c < d.c; ++c) {
      double sum = 0.0;
      for (int64_t n = 0; n < d.n; ++n) sum += double{dy[n * d.out_c + o]} * double{x[n * d.c + c]};
      dweight[o * d.c + c] = static_cast<float>(sum);
    }
    if (dbias == nullptr) continue;
    double sum = 0.0;
    for (int64_t n = 0; n < d.n; ++n) sum += double{dy[n * d.out_c + o]};
    dbias[o] = static_cast<float>(sum);
  }
}

// y[i] depends on a[i] and b[i] alone. A null b: the op has one input.
void Elementwise(const OpDesc& d, const float* a, const float* b, float* y) {
  for (int64_t i = 0; i < d.n * d.h * d.w * d.c; ++i) {
    const double second = b == nullptr ? 0.0 : double{b[i]};
    y[i] = static_cast<float>(ElementOf(d, double{a[i]}, second));
  }
}

// Over the c values of each position.
void LayerNormForward(const OpDesc& d, const float* x, const float* scale, const float* shift,
                      float* y, float* mean, float* variance) {
  const auto count = static_cast<double>(d.c);
  for (int64_t row = 0; row < d.n * d.h * d.w; ++row) {
    const float* const values = x + row * d.c;
    double sum = 0.0, squares = 0.0;
    for (int64_t c = 0; c < d.c; ++c) sum += double{values[c]};
    const double center = sum / count;
    for (int64_t c = 0; c < d.c; ++c) {
      squares += (double{values[c]} - center) * (double{values[c]} - center);
    }
    mean[row] = static_cast<float>(center);
    variance[row] = static_cast<float>(squares / count);
    const double inverse = 1.0 / std::sqrt(squares / count + double{d.epsilon});
    for (int64_t c = 0; c < d.c; ++c) {
      const double normal = (double{values[c]} - center) * inverse;
      y[row * d.c + c] = static_cast<float>(normal * double{scale[c]} + double{shift[c]});
    }
  }
}

void LayerNormBackward(const OpDesc& d, const float* x, const float* dy, const float* scale,
                       const float* mean, const float* variance, float* dx, float* dscale,
                       float* dshift) {
  const auto count = static_cast<double>(d.c);
  std::vector<double> scales(static_cast<size_t>(d.c)), shifts(static_cast<size_t>(d.c));
  for (int64_t row = 0; row < d.n * d.h * d.w; ++row) {
    const double inverse = 1.0 / std::sqrt(double{variance[row]} + double{d.epsilon});
    const auto normal = [&](int64_t c) {
      return (double{x[row * d.c + c]} - double{mean[row]}) * inverse;
    };
    const auto slope = [&](int64_t c) { return double{dy[row * d.c + c]} * double{scale[c]}; };
    double sum = 0.0, products = 0.0;
    for (int64_t c = 0; c < d.c; ++c) {
      sum += slope(c);
      products += slope(c) * normal(c);
      scales[static_cast<size_t>(c)] += double{dy[row * d.c + c]} * normal(c);
      shifts[static_cast<size_t>(c)] += double{dy[row * d.c + c]};
    }
    for (int64_t c = 0; c < d.c; ++c) {
      dx[row * d.c + c] =
          static_cast<float>(inverse * (slope(c) - sum / count - normal(c) * products / count));
    }
  }
  for (size_t c = 0; c < scales.size(); ++c) {
    dscale[c] = static_cast<float>(scales[c]);
    dshift[c] = static_cast<float>(shifts[c]);
  }
}

void RmsNormForward(const OpDesc& d, const float* x, const float* scale, float* y,
                    float* mean_square) {
  for (int64_t row = 0; row < d.n * d.h * d.w; ++row) {
    double squares = 0.0;
    for (int64_t c = 0; c < d.c; ++c)
      squares += double{x[row * d.c + c]} * double{x[row * d.c + c]};
    const double mean = squares / static_cast<double>(d.c);
    mean_square[row] = static_cast<float>(mean);
    for (int64_t c = 0; c < d.c; ++c) {
      const double normal = double{x[row * d.c + c]} / std::sqrt(mean + double{d.epsilon});
      y[row * d.c + c] = static_cast<float>(normal * double{scale[c]});
    }
  }
}

void RmsNormBackward(const OpDesc& d, const float* x, const float* dy, const float* scale,
                     const float* mean_square, float* dx, float* dscale) {
  std::vector<double> scales(static_cast<size_t>(d.c));
  for (int64_t row = 0; row < d.n * d.h * d.w; ++row) {
    const double root = std::sqrt(double{mean_square[row]} + double{d.epsilon});
    const auto normal = [&](int64_t c) { return double{x[row * d.c + c]} / root; };
    const auto slope = [&](int64_t c) { return double{dy[row * d.c + c]} * double{scale[c]}; };
    double products = 0.0;
    for (int64_t c = 0; c < d.c; ++c) {
      products += slope(c) * normal(c);
      scales[static_cast<size_t>(c)] += double{dy[row * d.c + c]} * normal(c);
    }
    const double mean = products / static_cast<double>(d.c);
    for (int64_t c = 0; c < d.c; ++c) {
      dx[row * d.c + c] = static_cast<float>((slope(c) - normal(c) * mean) / root);
    }
  }
  for (size_t c = 0; c < scales.size(); ++c) dscale[c] = static_cast<float>(scales[c]);
}

// The forward and the backward op: keeps element i iff PhiloxWord(key, i) >= rate * 2^32, and
// divides the elements that it keeps by (1 - rate).
void Dropout(const OpDesc& d, const float* x, const int32_t* key, float* y) {
  const double rate = double{d.dropout_rate};
  const double threshold = rate * 0x1p32;
  for (int64_t i = 0; i < d.n * d.h * d.w * d.c; ++i) {
    const uint32_t word = PhiloxWord(KeyOfWords(key[0], key[1]), static_cast<uint64_t>(i));
    const bool keep = static_cast<double>(word) >= threshold;
    y[i] = keep ? static_cast<float>(double{x[i]} / (1.0 - rate)) : 0.0f;
  }
}

// The loss of a sample is log(sum(exp(logits))) - logits[label], in nats, multiplied by
// weights[label] unless weights is null.
void SoftmaxCrossEntropyForward(const OpDesc& d, const float* logits, const int32_t* labels,
                                const float* weights, float* probabilities, float* loss) {
  for (int64_t n = 0; n < d.n; ++n) {
    const float* row = logits + n * d.c;
    const double largest = double{*std::max_element(row, row + d.c)};
    double sum = 0.0;
    for (int64_t c = 0; c < d.c; ++c) sum += std::exp(double{row[c]} - largest);
    for (int64_t c = 0; c < d.c; ++c) {
      probabilities[n * d.c + c] = static_cast<float>(std::exp(double{row[c]} - largest) / sum);
    }
    const double entropy = std::log(sum) + largest - double{row[labels[n]]};
    loss[n] = static_cast<float>(entropy * WeightOf(weights, labels[n]));
  }
}

void SoftmaxCrossEntropyBackward(const OpDesc& d, const float* probabilities, const int32_t* labels,
                                 const float* weights, float scale, float* dlogits) {
  for (int64_t n = 0; n < d.n; ++n) {
    const double factor = double{scale} * WeightOf(weights, labels[n]);
    for (int64_t c = 0; c < d.c; ++c) {
      const double target = c == labels[n] ? 1.0 : 0.0;
      dlogits[n * d.c + c] =
          static_cast<float>((double{probabilities[n * d.c + c]} - target) * factor);
    }
  }
}

// The loss of a sample is the mean of d.loss over its outputs; weights may be null.
void OutputLossForward(const OpDesc& d, const float* logits, const float* targets,
                       const float* weights, float* loss) {
  for (int64_t n = 0; n < d.n; ++n) {
    double sum = 0;
    for (int64_t c = 0; c < d.c; ++c) {
      const int64_t i = n * d.c + c;
      sum += LossOf(d, double{logits[i]}, double{targets[i]}, WeightOf(weights, c));
    }
    loss[n] = static_cast<float>(sum / static_cast<double>(d.c));
  }
}

void OutputLossBackward(const OpDesc& d, const float* logits, const float* targets,
                        const float* weights, float scale, float* dlogits) {
  const double factor = double{scale} / static_cast<double>(d.c);
  for (int64_t n = 0; n < d.n; ++n) {
    for (int64_t c = 0; c < d.c; ++c) {
      const int64_t i = n * d.c + c;
      dlogits[i] = static_cast<float>(
          factor * SlopeOf(d, double{logits[i]}, double{targets[i]}, WeightOf(weights, c)));
    }
  }
}

void EmbeddingForward(const OpDesc& d, const float* row_numbers, const float* weight, float* y) {
  for (int64_t i = 0; i < d.n * d.c; ++i) {
    const auto row = static_cast<int64_t>(row_numbers[i]);
    std::copy_n(weight + row * d.out_c, d.out_c, y + i * d.out_c);
  }
}

void EmbeddingBackward(const OpDesc& d, const float* row_numbers, const float* dy, float* dweight) {
  std::vector<double> sums(static_cast<size_t>(d.rows * d.out_c));
  for (int64_t i = 0; i < d.n * d.c; ++i) {
    const auto row = static_cast<int64_t>(row_numbers[i]);
    for (int64_t j = 0; j < d.out_c; ++j) {
      sums[static_cast<size_t>(row * d.out_c + j)] += double{dy[i * d.out_c + j]};
    }
  }
  for (size_t i = 0; i < sums.size(); ++i) dweight[i] = static_cast<float>(sums[i]);
}

constexpr ReferenceOp kOps[] = {
    {OpKind::kFullyConnectedForward, RunOn<FullyConnectedForward>},
    {OpKind::kFullyConnectedBackwardData, RunOn<FullyConnectedBackwardData>},
    {OpKind::kFullyConnectedBackwardWeights, RunOn<FullyConnectedBackwardWeights>},
    {OpKind::kReluForward, RunOn<Elementwise>},
    {OpKind::kReluBackward, RunOn<Elementwise>},
    {OpKind::kActivationForward, RunOn<Elementwise>},
    {OpKind::kActivationBackward, RunOn<Elementwise>},
    {OpKind::kAdd, RunOn<Elementwise>},
    {OpKind::kLayerNormForward, RunOn<LayerNormForward>},
    {OpKind::kLayerNormBackward, RunOn<LayerNormBackward>},
    {OpKind::kRmsNormForward, RunOn<RmsNormForward>},
    {OpKind::kRmsNormBackward, RunOn<RmsNormBackward>},
    {OpKind::kDropoutForward, RunOn<Dropout>},
    {OpKind::kDropoutBackward, RunOn<Dropout>},
    {OpKind::kSoftmaxCrossEntropyForward, RunOn<SoftmaxCrossEntropyForward>},
    {OpKind::kSoftmaxCrossEntropyBackward, RunOn<SoftmaxCrossEntropyBackward>},
    {OpKind::kOutputLossForward, RunOn<OutputLossForward>},
    {OpKind::kOutputLossBackward, RunOn<OutputLossBackward>},
    {OpKind::kEmbeddingForward, RunOn<EmbeddingForward>},
    {OpKind::kEmbeddingBackward, RunOn<EmbeddingBackward>},
};

}  // namespace

absl::Span<const ReferenceOp> MatrixOps() { return kOps; }

}  // namespace capstan::kernels::reference
