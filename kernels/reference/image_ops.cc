// Convolution, pooling and batch normalisation. A null bias or dbias means that there is none.
#include <cmath>
#include <cstddef>
#include <vector>

#include "kernels/reference/reference_ops.h"

namespace capstan::kernels::reference {
namespace {

// Calls visit(y index without channel, x index without channel, kernel offset) for every pair of an
// output position and an input position in its window: outputs in order, offsets row-major. Leaves
// out positions in the padding.
template <typename Visit>
void ForEachWindow(const OpDesc& d, const Visit& visit) {
  for (int64_t n = 0; n < d.n; ++n) {
    for (int64_t oh = 0; oh < d.out_h; ++oh) {
      for (int64_t ow = 0; ow < d.out_w; ++ow) {
        const int64_t y = (n * d.out_h + oh) * d.out_w + ow;
        for (int64_t k = 0; k < d.kernel * d.kernel; ++k) {
          const int64_t h = oh * d.stride - d.padding + k / d.kernel;
          const int64_t w = ow * d.stride - d.padding + k % d.kernel;
          if (h < 0 || h >= d.h || w < 0 || w >= d.w) continue;
          visit(y, (n * d.h + h) * d.w + w, k);
        }
      }
    }
  }
}

void Store(const std::vector<double>& from, float* to) {
  for (size_t i = 0; i < from.size(); ++i) to[i] = static_cast<float>(from[i]);
}

std::vector<double> Zeros(int64_t count) { return std::vector<double>(static_cast<size_t>(count)); }

// The index of the weight of (filter o, kernel offset k, channel c) in OHWI.
int64_t WeightIndex(const OpDesc& d, int64_t o, int64_t k, int64_t c) {
  return (o * d.kernel * d.kernel + k) * d.c + c;
}

// For each window, by its y index without channel: the number of positions that are not padding.
std::vector<double> WindowSizes(const OpDesc& d) {
  std::vector<double> sizes = Zeros(d.n * d.out_h * d.out_w);
  ForEachWindow(d, [&](int64_t yi, int64_t, int64_t) { sizes[static_cast<size_t>(yi)] += 1.0; });
  return sizes;
}

double Relu(double value) { return value < 0.0 ? 0.0 : value; }

void ConvolutionForward(const OpDesc& d, const float* x, const float* weight, const float* bias,
                        float* y) {
  std::vector<double> sums = Zeros(d.n * d.out_h * d.out_w * d.out_c);
  ForEachWindow(d, [&](int64_t yi, int64_t xi, int64_t k) {
    for (int64_t o = 0; o < d.out_c; ++o) {
      for (int64_t c = 0; c < d.c; ++c) {
        sums[static_cast<size_t>(yi * d.out_c + o)] +=
            double{x[xi * d.c + c]} * double{weight[WeightIndex(d, o, k, c)]};
      }
    }
  });
  for (size_t i = 0; i < sums.size(); ++i) {
    if (bias != nullptr) sums[i] += double{bias[static_cast<int64_t>(i) % d.out_c]};
    if (d.fuse_relu) sums[i] = Relu(sums[i]);
  }
  Store(sums, y);
}

void ConvolutionBackwardData(const OpDesc& d, const float* dy, const float* weight, float* dx) {
  std::vector<double> sums = Zeros(d.n * d.h * d.w * d.c);
  ForEachWindow(d, [&](int64_t yi, int64_t xi, int64_t k) {
    for (int64_t o = 0; o < d.out_c; ++o) {
      for (int64_t c = 0; c < d.c; ++c) {
        sums[static_cast<size_t>(xi * d.c + c)] +=
            double{dy[yi * d.out_c + o]} * double{weight[WeightIndex(d, o, k, c)]};
      }
    }
  });
  Store(sums, dx);
}

void ConvolutionBackwardWeights(const OpDesc& d, const float* x, const float* dy, float* dweight,
                                float* dbias) {
  std::vector<double> sums = Zeros(d.out_c * d.kernel * d.kernel * d.c);
  ForEachWindow(d, [&](int64_t yi, int64_t xi, int64_t k) {
    for (int64_t o = 0; o < d.out_c; ++o) {
      for (int64_t c = 0; c < d.c; ++c) {
        sums[static_cast<size_t>(WeightIndex(d, o, k, c))] +=
            double{dy[yi * d.out_c + o]} * double{x[xi * d.c + c]};
      }
    }
  });
  Store(sums, dweight);
  if (dbias == nullptr) return;
  std::vector<double> bias_sums = Zeros(d.out_c);
  for (int64_t i = 0; i < d.n * d.out_h * d.out_w * d.out_c; ++i) {
    bias_sums[static_cast<size_t>(i % d.out_c)] += double{dy[i]};
  }
  Store(bias_sums, dbias);
}

void MaxPoolForward(const OpDesc& d, const float* x, float* y, int32_t* index) {
  for (int64_t i = 0; i < d.n * d.out_h * d.out_w * d.c; ++i) index[i] = -1;
  ForEachWindow(d, [&](int64_t yi, int64_t xi, int64_t k) {
    for (int64_t c = 0; c < d.c; ++c) {
      const float value = x[xi * d.c + c];
      float& best = y[yi * d.c + c];
      int32_t& winner = index[yi * d.c + c];
      if (winner >= 0 && !(value > best) && !std::isnan(value)) continue;
      best = value;
      winner = static_cast<int32_t>(k);
    }
  });
}

void MaxPoolBackward(const OpDesc& d, const float* dy, const int32_t* index, float* dx) {
  std::vector<double> sums = Zeros(d.n * d.h * d.w * d.c);
  ForEachWindow(d, [&](int64_t yi, int64_t xi, int64_t k) {
    for (int64_t c = 0; c < d.c; ++c) {
      if (index[yi * d.c + c] != k) continue;
      sums[static_cast<size_t>(xi * d.c + c)] += double{dy[yi * d.c + c]};
    }
  });
  Store(sums, dx);
}

void AveragePoolForward(const OpDesc& d, const float* x, float* y) {
  const std::vector<double> sizes = WindowSizes(d);
  std::vector<double> sums = Zeros(d.n * d.out_h * d.out_w * d.c);
  ForEachWindow(d, [&](int64_t yi, int64_t xi, int64_t) {
    for (int64_t c = 0; c < d.c; ++c) {
      sums[static_cast<size_t>(yi * d.c + c)] += double{x[xi * d.c + c]};
    }
  });
  for (size_t i = 0; i < sums.size(); ++i) sums[i] /= sizes[i / static_cast<size_t>(d.c)];
  Store(sums, y);
}

void AveragePoolBackward(const OpDesc& d, const float* dy, float* dx) {
  const std::vector<double> sizes = WindowSizes(d);
  std::vector<double> sums = Zeros(d.n * d.h * d.w * d.c);
  ForEachWindow(d, [&](int64_t yi, int64_t xi, int64_t) {
    for (int64_t c = 0; c < d.c; ++c) {
      sums[static_cast<size_t>(xi * d.c + c)] +=
          double{dy[yi * d.c + c]} / sizes[static_cast<size_t>(yi)];
    }
  });
  Store(sums, dx);
}

// A null addend means that there is none.
void BatchNormInference(const OpDesc& d, const float* x, const float* scale, const float* shift,
                        const float* mean, const float* variance, const float* addend, float* y) {
  for (int64_t i = 0; i < d.n * d.h * d.w * d.c; ++i) {
    const int64_t c = i % d.c;
    const double normal =
        (double{x[i]} - double{mean[c]}) / std::sqrt(double{variance[c]} + double{d.epsilon});
    double sum = normal * double{scale[c]} + double{shift[c]};
    if (addend != nullptr) sum += double{addend[i]};
    y[i] = static_cast<float>(d.fuse_relu ? Relu(sum) : sum);
  }
}

void BatchNormForward(const OpDesc& d, const float* x, const float* scale, const float* shift,
                      const float* addend, float* y, float* mean, float* variance) {
  const int64_t positions = d.n * d.h * d.w;
  for (int64_t c = 0; c < d.c; ++c) {
    double sum = 0.0;
    for (int64_t i = 0; i < positions; ++i) sum += double{x[i * d.c + c]};
    const double center = positions == 0 ? 0.0 : sum / static_cast<double>(positions);
    double squares = 0.0;
    for (int64_t i = 0; i < positions; ++i) {
      const double deviation = double{x[i * d.c + c]} - center;
      squares += deviation * deviation;
    }
    mean[c] = static_cast<float>(center);
    variance[c] =
        static_cast<float>(positions == 0 ? 0.0 : squares / static_cast<double>(positions));
  }
  BatchNormInference(d, x, scale, shift, mean, variance, addend, y);
}

// shift_or_y is y with has_addend, else shift, which only fuse_relu needs. dy2 and dsum are null
// without has_dy2 and has_addend.
void BatchNormBackward(const OpDesc& d, const float* x, const float* dy, const float* scale,
                       const float* mean, const float* variance, const float* shift_or_y,
                       const float* dy2, float* dx, float* dscale, float* dshift, float* dsum) {
  const int64_t positions = d.n * d.h * d.w;
  std::vector<double> gradient = Zeros(positions * d.c);  // The gradient dz of ReLU's argument.
  for (int64_t c = 0; c < d.c; ++c) {
    const double inverse = 1.0 / std::sqrt(double{variance[c]} + double{d.epsilon});
    const auto normal = [&](int64_t i) { return (double{x[i]} - double{mean[c]}) * inverse; };
    const auto passes = [&](int64_t i) {
      if (d.has_addend) return shift_or_y[i] > 0.0f;
      return !d.fuse_relu || normal(i) * double{scale[c]} + double{shift_or_y[c]} > 0.0;
    };
    double sum = 0.0;
    double sum_normal = 0.0;
    for (int64_t i = c; i < positions * d.c; i += d.c) {
      const double whole = double{dy[i]} + (d.has_dy2 ? double{dy2[i]} : 0.0);
      const double dz = passes(i) ? whole : 0.0;
      gradient[static_cast<size_t>(i)] = dz;
      sum += dz;
      sum_normal += dz * normal(i);
    }
    const auto count = static_cast<double>(positions);
    for (int64_t i = c; i < positions * d.c; i += d.c) {
      const double centred =
          gradient[static_cast<size_t>(i)] - sum / count - normal(i) * sum_normal / count;
      dx[i] = static_cast<float>(double{scale[c]} * inverse * centred);
    }
    dscale[c] = static_cast<float>(sum_normal);
    dshift[c] = static_cast<float>(sum);
  }
  if (d.has_addend) Store(gradient, dsum);
}

constexpr ReferenceOp kOps[] = {
    {OpKind::kConvolutionForward, RunOn<ConvolutionForward>},
    {OpKind::kConvolutionBackwardData, RunOn<ConvolutionBackwardData>},
    {OpKind::kConvolutionBackwardWeights, RunOn<ConvolutionBackwardWeights>},
    {OpKind::kMaxPoolForward, RunOn<MaxPoolForward>},
    {OpKind::kMaxPoolBackward, RunOn<MaxPoolBackward>},
    {OpKind::kAveragePoolForward, RunOn<AveragePoolForward>},
    {OpKind::kAveragePoolBackward, RunOn<AveragePoolBackward>},
    {OpKind::kBatchNormForward, RunOn<BatchNormForward>},
    {OpKind::kBatchNormInference, RunOn<BatchNormInference>},
    {OpKind::kBatchNormBackward, RunOn<BatchNormBackward>},
};

}  // namespace

absl::Span<const ReferenceOp> ImageOps() { return kOps; }

}  // namespace capstan::kernels::reference
