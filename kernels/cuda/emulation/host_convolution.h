// The three convolutions on the host. Sums are fp64, in an order that the shape decides.
//
// Shapes: x [n, h, w, c], weight [k, r, s, c] and y [n, p, q, k], dense; dx, dweight and dy alike.
// Thread safety: pure functions.
#ifndef CAPSTAN_KERNELS_CUDA_EMULATION_HOST_CONVOLUTION_H_
#define CAPSTAN_KERNELS_CUDA_EMULATION_HOST_CONVOLUTION_H_

#include <array>
#include <cstdint>
#include <vector>

namespace capstan::kernels::cuda::emulation {

// Pairs are of the rows (h, p, r) and of the columns (w, q, s).
struct ConvolutionShape {
  int64_t n = 0, c = 0, k = 0;
  std::array<int64_t, 2> image{};   // h, w.
  std::array<int64_t, 2> result{};  // p, q.
  std::array<int64_t, 2> window{};  // r, s.
  std::array<int64_t, 2> stride{};
  std::array<int64_t, 2> padding{};  // Before the first row and column.
  std::array<int64_t, 2> dilation{};
};

std::vector<double> ConvolutionForward(const ConvolutionShape& shape, const std::vector<float>& x,
                                       const std::vector<float>& weight);

std::vector<double> ConvolutionBackwardData(const ConvolutionShape& shape,
                                            const std::vector<float>& dy,
                                            const std::vector<float>& weight);

std::vector<double> ConvolutionBackwardWeights(const ConvolutionShape& shape,
                                               const std::vector<float>& x,
                                               const std::vector<float>& dy);

}  // namespace capstan::kernels::cuda::emulation

#endif  // CAPSTAN_KERNELS_CUDA_EMULATION_HOST_CONVOLUTION_H_
