#include "kernels/cuda/emulation/host_product.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <vector>

#include "kernels/cuda/emulation/host_numbers.h"
#include "kernels/cuda/emulation/runtime.h"

namespace capstan::kernels::cuda::emulation {
namespace {

// Calls `work` with the matrix's first element, as a pointer to its type.
template <typename Work>
void WithType(const Matrix& matrix, const Work& work) {
  switch (matrix.type) {
    case CUDA_R_16BF:
      return work(static_cast<__nv_bfloat16*>(matrix.data));
    case CUDA_R_16F:
      return work(static_cast<__half*>(matrix.data));
    default:
      return work(static_cast<float*>(matrix.data));
  }
}

// op(matrix), columns first and without gaps.
std::vector<float> Packed(const Matrix& matrix, bool transposed, bool tf32) {
  std::vector<float> packed(static_cast<size_t>(matrix.rows * matrix.columns));
  const int64_t row_step = transposed ? matrix.columns : 1;
  const int64_t column_step = transposed ? 1 : matrix.rows;
  WithType(matrix, [&](const auto* data) {
    for (int64_t j = 0; j < matrix.columns; ++j) {
      for (int64_t i = 0; i < matrix.rows; ++i) {
        const float value = ToFloat(data[j * matrix.ld + i]);
        packed[static_cast<size_t>(i * row_step + j * column_step)] =
            tf32 ? RoundToTf32(value) : value;
      }
    }
  });
  return packed;
}

struct Range {
  uintptr_t begin = 0, end = 0;
  bool written = false;
};

Range RangeOf(const void* data, size_t bytes, bool written) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  return {begin, begin + bytes, written};
}

Range RangeOf(const Matrix& matrix, bool written) {
  const size_t element = matrix.type == CUDA_R_32F ? 4 : 2;
  const auto elements = static_cast<size_t>((matrix.columns - 1) * matrix.ld + matrix.rows);
  return RangeOf(matrix.data, elements * element, written);
}

std::vector<Range> RangesOf(const HostProduct& p) {
  std::vector<Range> ranges = {RangeOf(p.a, false), RangeOf(p.b, false), RangeOf(p.d, true)};
  if (p.beta != 0.0f && p.c.data != p.d.data) ranges.push_back(RangeOf(p.c, false));
  if (p.epilogue != ProductEpilogue::kNone) {
    const bool gradient = p.epilogue == ProductEpilogue::kBiasGradientB;
    const int64_t count = gradient ? p.d.columns : p.d.rows;
    ranges.push_back(RangeOf(p.bias, 4 * static_cast<size_t>(count), gradient));
  }
  if (p.workspace_bytes > 0) {
    ranges.push_back(RangeOf(p.workspace, p.workspace_bytes, /*written=*/true));
  }
  return ranges;
}

cudaError_t Check(const std::vector<Range>& ranges, int device) {
  for (const Range& range : ranges) {
    if (!IsDeviceMemory(device, reinterpret_cast<const void*>(range.begin),
                        range.end - range.begin)) {
      return cudaErrorIllegalAddress;
    }
    for (const Range& other : ranges) {
      if (&other == &range || !range.written) continue;
      if (other.begin < range.end && range.begin < other.end) return cudaErrorLaunchFailure;
    }
  }
  return cudaSuccess;
}

// `a` and `b` are op(A) and op(B), packed.
void Multiply(const HostProduct& p, const std::vector<float>& a, const std::vector<float>& b) {
  const auto m = static_cast<size_t>(p.d.rows);
  const auto n = static_cast<size_t>(p.d.columns);
  const size_t k = a.size() / m;
  std::vector<float> addend;
  if (p.beta != 0.0f) addend = Packed(p.c, /*transposed=*/false, /*tf32=*/false);
  std::vector<double> sums(m);
  WithType(p.d, [&]<typename T>(T* d) {
    for (size_t j = 0; j < n; ++j) {
      std::fill(sums.begin(), sums.end(), 0.0);
      for (size_t l = 0; l < k; ++l) {
        const double factor = b[j * k + l];
        const float* const column = &a[l * m];
        for (size_t i = 0; i < m; ++i) sums[i] += column[i] * factor;
      }
      for (size_t i = 0; i < m; ++i) {
        float value = p.alpha * static_cast<float>(sums[i]);
        if (p.beta != 0.0f) value += p.beta * addend[j * m + i];
        if (p.epilogue == ProductEpilogue::kBias) value += p.bias[i];
        d[j * static_cast<size_t>(p.d.ld) + i] = FromFloat<T>(value);
      }
    }
  });
}

void SumBiasGradient(const HostProduct& p, const std::vector<float>& b) {
  const auto n = static_cast<size_t>(p.d.columns);
  const size_t k = b.size() / n;
  for (size_t j = 0; j < n; ++j) {
    double sum = 0.0;
    for (size_t l = 0; l < k; ++l) sum += b[j * k + l];
    p.bias[j] = static_cast<float>(sum);
  }
}

}  // namespace

cudaError_t Run(const HostProduct& p) {
  if (const cudaError_t error = Check(RangesOf(p), p.device); error != cudaSuccess) return error;
  FillWithNan(p.workspace, p.workspace_bytes);
  const std::vector<float> a = Packed(p.a, p.a_transposed, p.tf32);
  const std::vector<float> b = Packed(p.b, p.b_transposed, p.tf32);
  Multiply(p, a, b);
  // Of the factors as the product takes them: in TF32 it loses the same bits.
  if (p.epilogue == ProductEpilogue::kBiasGradientB) SumBiasGradient(p, b);
  FillWithNan(p.workspace, p.workspace_bytes);
  return cudaSuccess;
}

}  // namespace capstan::kernels::cuda::emulation
