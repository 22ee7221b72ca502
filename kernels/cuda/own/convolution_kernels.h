// Convolutions as plain loops, for shapes and modes for which cuDNN offers no plan that
// cudnn_graph.h accepts. They are correct, but not fast.
//
//   forward            y[n,oh,ow,o] = sum over the window and c of x * weight
//   backward data      dx[n,h,w,c] = sum over the windows that hold (h, w), and o, of dy * weight
//   backward weights   dweight[o,kh,kw,c] = sum over n, oh, ow of x * dy; one block per element
//
// Operands are those of op.h, without bias and ReLU; dweight is always fp32. In the first two, one
// thread computes one element and adds in order. Every run gives the same bits. The kernels are
// compute bound: every product costs two loads from the caches. kernels/reference/image_ops.cc is
// the specification.
// Thread safety: any stream of any thread.
#ifndef CAPSTAN_KERNELS_CUDA_OWN_CONVOLUTION_KERNELS_H_
#define CAPSTAN_KERNELS_CUDA_OWN_CONVOLUTION_KERNELS_H_

#include <cuda_runtime_api.h>

#include "kernels/cuda/own/kernel_types.h"

namespace capstan::kernels::cuda {

struct ConvolutionArgs {
  Element type = Element::kFloat;
  WindowShape shape;
  int out_c = 1;
  void* x = nullptr;       // x or dx.
  void* weight = nullptr;  // weight; dweight is fp32.
  void* y = nullptr;       // y or dy.
};
cudaError_t LaunchConvolutionForward(const ConvolutionArgs& args, cudaStream_t stream);
cudaError_t LaunchConvolutionBackwardData(const ConvolutionArgs& args, cudaStream_t stream);
cudaError_t LaunchConvolutionBackwardWeights(const ConvolutionArgs& args, cudaStream_t stream);

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_OWN_CONVOLUTION_KERNELS_H_
