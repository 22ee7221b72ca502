// Naive fully connected, element-wise, loss and embedding ops, for the reference backend.
//
// REQUIRES everywhere: the descriptor passed MakeSignature, pointers hold its operand counts, and
// labels and row numbers are in range. A null bias or dbias means that there is none. Thread
// safety: pure functions of their arguments.
#ifndef CAPSTAN_KERNELS_REFERENCE_MATRIX_OPS_H_
#define CAPSTAN_KERNELS_REFERENCE_MATRIX_OPS_H_

#include <cstdint>

#include "kernels/op.h"

namespace capstan::kernels::reference {

void FullyConnectedForward(const OpDesc& d, const float* x, const float* weight, const float* bias,
                           float* y);
void FullyConnectedBackwardData(const OpDesc& d, const float* dy, const float* weight, float* dx);
void FullyConnectedBackwardWeights(const OpDesc& d, const float* x, const float* dy, float* dweight,
                                   float* dbias);

// Activations and sums: y[i] depends on a[i] and b[i] alone. A null b: the op has one input.
void Elementwise(const OpDesc& d, int64_t count, const float* a, const float* b, float* y);
// Over the c values of each position.
void LayerNormForward(const OpDesc& d, const float* x, const float* scale, const float* shift,
                      float* y, float* mean, float* variance);
void LayerNormBackward(const OpDesc& d, const float* x, const float* dy, const float* scale,
                       const float* mean, const float* variance, float* dx, float* dscale,
                       float* dshift);
// The forward and the backward op: keeps element i iff PhiloxWord(key, i) >= rate * 2^32, and
// divides the elements that it keeps by (1 - rate).
void Dropout(int64_t count, float rate, uint64_t key, const float* x, float* y);

// The loss of a sample is log(sum(exp(logits))) - logits[label], in nats, multiplied by
// weights[label] unless weights is null.
void SoftmaxCrossEntropyForward(const OpDesc& d, const float* logits, const int32_t* labels,
                                const float* weights, float* probabilities, float* loss);
void SoftmaxCrossEntropyBackward(const OpDesc& d, const float* probabilities, const int32_t* labels,
                                 const float* weights, float scale, float* dlogits);

// The loss of a sample is the mean of d.loss over its outputs; weights may be null.
void OutputLossForward(const OpDesc& d, const float* logits, const float* targets,
                       const float* weights, float* loss);
void OutputLossBackward(const OpDesc& d, const float* logits, const float* targets,
                        const float* weights, float scale, float* dlogits);

void EmbeddingForward(const OpDesc& d, const float* row_numbers, const float* weight, float* y);
void EmbeddingBackward(const OpDesc& d, const float* row_numbers, const float* dy, float* dweight);

}  // namespace capstan::kernels::reference

#endif  // CAPSTAN_KERNELS_REFERENCE_MATRIX_OPS_H_
