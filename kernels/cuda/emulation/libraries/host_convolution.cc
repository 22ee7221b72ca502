#include "kernels/cuda/emulation/libraries/host_convolution.h"

#include <cstddef>

namespace capstan::kernels::cuda::emulation {
namespace {

std::vector<double> Wide(const std::vector<float>& values) {
  return std::vector<double>(values.begin(), values.end());
}

// y += a * x.
inline void Add(int64_t count, double a, const double* x, double* y) {
  for (int64_t i = 0; i < count; ++i) y[i] += a * x[i];
}

// Calls visit(pixel, position, tap) for every position of the result and every pixel that its
// window reads. The arguments are row-major indices over all images. Leaves the padding out.
template <typename Visit>
void ForEachTap(const ConvolutionShape& s, const Visit& visit) {
  int64_t position = 0;
  for (int64_t n = 0; n < s.n; ++n) {
    for (int64_t p = 0; p < s.result[0]; ++p) {
      for (int64_t q = 0; q < s.result[1]; ++q, ++position) {
        for (int64_t r = 0; r < s.window[0]; ++r) {
          const int64_t row = p * s.stride[0] - s.padding[0] + r * s.dilation[0];
          if (row < 0 || row >= s.image[0]) continue;
          for (int64_t t = 0; t < s.window[1]; ++t) {
            const int64_t column = q * s.stride[1] - s.padding[1] + t * s.dilation[1];
            if (column < 0 || column >= s.image[1]) continue;
            visit((n * s.image[0] + row) * s.image[1] + column, position, r * s.window[1] + t);
          }
        }
      }
    }
  }
}

int64_t Taps(const ConvolutionShape& s) { return s.window[0] * s.window[1]; }

// [k, taps, c] -> [taps, c, k]: the weights that multiply one value of x become neighbours.
std::vector<double> FiltersLast(const ConvolutionShape& s, const std::vector<float>& weight) {
  std::vector<double> turned(weight.size());
  const int64_t rows = Taps(s) * s.c;
  for (int64_t k = 0; k < s.k; ++k) {
    for (int64_t i = 0; i < rows; ++i) {
      turned[static_cast<size_t>(i * s.k + k)] = weight[static_cast<size_t>(k * rows + i)];
    }
  }
  return turned;
}

}  // namespace

std::vector<double> ConvolutionForward(const ConvolutionShape& s, const std::vector<float>& x,
                                       const std::vector<float>& weight) {
  const std::vector<double> filters = FiltersLast(s, weight);
  std::vector<double> y(static_cast<size_t>(s.n * s.result[0] * s.result[1] * s.k));
  ForEachTap(s, [&](int64_t pixel, int64_t position, int64_t tap) {
    const float* const from = x.data() + pixel * s.c;
    const double* const factors = filters.data() + tap * s.c * s.k;
    double* const to = y.data() + position * s.k;
    for (int64_t c = 0; c < s.c; ++c) Add(s.k, double{from[c]}, factors + c * s.k, to);
  });
  return y;
}

std::vector<double> ConvolutionBackwardData(const ConvolutionShape& s, const std::vector<float>& dy,
                                            const std::vector<float>& weight) {
  const std::vector<double> factors = Wide(weight);
  std::vector<double> dx(static_cast<size_t>(s.n * s.image[0] * s.image[1] * s.c));
  const int64_t filter = Taps(s) * s.c;
  ForEachTap(s, [&](int64_t pixel, int64_t position, int64_t tap) {
    const float* const from = dy.data() + position * s.k;
    const double* const row = factors.data() + tap * s.c;
    double* const to = dx.data() + pixel * s.c;
    for (int64_t k = 0; k < s.k; ++k) Add(s.c, double{from[k]}, row + k * filter, to);
  });
  return dx;
}

std::vector<double> ConvolutionBackwardWeights(const ConvolutionShape& s,
                                               const std::vector<float>& x,
                                               const std::vector<float>& dy) {
  const std::vector<double> factors = Wide(x);
  std::vector<double> dweight(static_cast<size_t>(s.k * Taps(s) * s.c));
  const int64_t filter = Taps(s) * s.c;
  ForEachTap(s, [&](int64_t pixel, int64_t position, int64_t tap) {
    const float* const from = dy.data() + position * s.k;
    const double* const row = factors.data() + pixel * s.c;
    double* const to = dweight.data() + tap * s.c;
    for (int64_t k = 0; k < s.k; ++k) Add(s.c, double{from[k]}, row, to + k * filter);
  });
  return dweight;
}

}  // namespace capstan::kernels::cuda::emulation
