// Naive convolution, pooling and batch normalisation, for the reference backend. kernels/op.h
// defines layouts and operand order; reference_backend.h decides what op.h leaves open.
//
// REQUIRES everywhere: the descriptor passed MakeSignature, and pointers hold its operand counts.
// A null bias or dbias means that there is none. Thread safety: pure functions of their arguments.
#ifndef CAPSTAN_KERNELS_REFERENCE_IMAGE_OPS_H_
#define CAPSTAN_KERNELS_REFERENCE_IMAGE_OPS_H_

#include <cstdint>

#include "kernels/op.h"

namespace capstan::kernels::reference {

void ConvolutionForward(const OpDesc& d, const float* x, const float* weight, const float* bias,
                        float* y);
void ConvolutionBackwardData(const OpDesc& d, const float* dy, const float* weight, float* dx);
void ConvolutionBackwardWeights(const OpDesc& d, const float* x, const float* dy, float* dweight,
                                float* dbias);

void MaxPoolForward(const OpDesc& d, const float* x, float* y, int32_t* index);
void MaxPoolBackward(const OpDesc& d, const float* dy, const int32_t* index, float* dx);
void AveragePoolForward(const OpDesc& d, const float* x, float* y);
void AveragePoolBackward(const OpDesc& d, const float* dy, float* dx);

// A null addend means that there is none. BatchNormBackward reads shift only with fuse_relu and
// without has_addend, y only with has_addend, and dy2 only with has_dy2; it writes dsum only with
// has_addend. Arguments that it does not use may be null.
void BatchNormForward(const OpDesc& d, const float* x, const float* scale, const float* shift,
                      const float* addend, float* y, float* mean, float* variance);
void BatchNormInference(const OpDesc& d, const float* x, const float* scale, const float* shift,
                        const float* mean, const float* variance, const float* addend, float* y);
void BatchNormBackward(const OpDesc& d, const float* x, const float* dy, const float* scale,
                       const float* mean, const float* variance, const float* shift, const float* y,
                       const float* dy2, float* dx, float* dscale, float* dshift, float* dsum);

}  // namespace capstan::kernels::reference

#endif  // CAPSTAN_KERNELS_REFERENCE_IMAGE_OPS_H_
