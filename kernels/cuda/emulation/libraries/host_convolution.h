// The three convolutions on the host, for the emulated cuDNN and cuBLASLt. Sums are fp64; the shape
// decides their order.
//
// Shapes: x and dx [n, h, w, c], weight and dweight [k, r, s, c], y and dy [n, p, q, k]; dense.
// Thread safety: pure functions.
#ifndef CAPSTAN_KERNELS_CUDA_EMULATION_LIBRARIES_HOST_CONVOLUTION_H_
#define CAPSTAN_KERNELS_CUDA_EMULATION_LIBRARIES_HOST_CONVOLUTION_H_

#include <array>
#include <cstdint>
#include <vector>

namespace capstan::kernels::cuda::emulation {

// Each pair has the value for rows (h, p, r) and the value for columns (w, q, s).
struct ConvolutionShape {
  int64_t n = 0, c = 0, k = 0;
  std::array<int64_t, 2> image{};   // h, w.
  std::array<int64_t, 2> result{};  // p, q.
  std::array<int64_t, 2> window{};  // r, s.
  std::array<int64_t, 2> stride{};
  std::array<int64_t, 2> padding{};  // Padding before the first row and column.
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

#endif  // CAPSTAN_KERNELS_CUDA_EMULATION_LIBRARIES_HOST_CONVOLUTION_H_
