// Sums over positions and batch norm; image_kernels.h has the maths, shapes and bytes of each.
#include "kernels/cuda/own/columns.cuh"
#include "kernels/cuda/own/image_kernels.h"
#include "kernels/cuda/own/launch.cuh"

namespace capstan::kernels::cuda {
namespace {

// ---------------------------------------------------------------- bias gradient

template <int N, typename T>
struct GradientValues {
  const T* dy;
  struct Columns {
    const T* dy;
    Pair (&sums)[N];
    static constexpr int kOperands = 1;
    __device__ Packed<N, T> Read(int64_t i) const { return PackedAt<N>(dy + i); }
    __device__ void Use(int64_t, const Packed<N, T>& packed) const {
      const Row<N> g = RowOf(packed);
#pragma unroll
      for (int k = 0; k < N; ++k) sums[k].a += g.v[k];
    }
  };
  __device__ Columns OfColumns(int, Pair (&sums)[N]) const { return {dy, sums}; }
};
struct StoreSums {
  float* sums;
  __device__ void operator()(int column, double2 sum) const {
    sums[column] = static_cast<float>(sum.x);
  }
};

// ---------------------------------------------------------------- batch norm, forward

// Sums deviations from the channel's x[0] and their squares. These do not cancel, whatever the mean
// is.
template <int N, typename T>
struct DeviationValues {
  const T* x;
  struct Columns {
    const T* x;
    Row<N> pivot;
    Pair (&sums)[N];
    static constexpr int kOperands = 1;
    __device__ Packed<N, T> Read(int64_t i) const { return PackedAt<N>(x + i); }
    __device__ void Use(int64_t, const Packed<N, T>& packed) const {
      const Row<N> one = RowOf(packed);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const float deviation = one.v[k] - pivot.v[k];
        sums[k].a += deviation;
        sums[k].b += deviation * deviation;
      }
    }
  };
  __device__ Columns OfColumns(int column, Pair (&sums)[N]) const {
    return {x, RowOf(PackedAt<N>(x + column)), sums};
  }
};
template <typename T>
struct StoreMoments {
  const T* x;
  double rows;
  float* mean;
  float* variance;
  __device__ void operator()(int column, double2 sum) const {
    const double shift = sum.x / rows;
    const double spread = sum.y / rows - shift * shift;
    mean[column] = static_cast<float>(static_cast<double>(Load(x + column)) + shift);
    variance[column] = static_cast<float>(spread < 0.0 ? 0.0 : spread);  // Keeps NaN.
  }
};

// Maps x of N channels to normal * scale + shift.
template <int N>
struct Normal {
  Row<N> mean, inverse, scale, shift;
  __device__ Normal(const BatchNormArgs& a, int column)
      : mean(ChannelsAt<N>(a.mean, column)),
        inverse(ChannelsAt<N>(a.variance, column)),
        scale(ChannelsAt<N>(a.scale, column)),
        shift() {
    if (a.shift != nullptr) shift = ChannelsAt<N>(a.shift, column);
#pragma unroll
    for (int k = 0; k < N; ++k) inverse.v[k] = InverseDeviation(inverse.v[k], a.epsilon);
  }
  __device__ float operator()(float x, int k) const {
    return (x - mean.v[k]) * inverse.v[k] * scale.v[k] + shift.v[k];
  }
};

template <int N, typename T, Fused kFused>
struct Normalise {
  BatchNormArgs a;
  struct Columns {
    const T* x;
    const T* addend;
    T* y;
    Normal<N> normal;
    static constexpr int kOperands = kFused == Fused::kAddendRelu ? 2 : 1;
    struct Values {
      Packed<N, T> x, addend;
    };
    __device__ Values Read(int64_t i) const {
      if constexpr (kFused == Fused::kAddendRelu) {
        return {PackedAt<N>(x + i), PackedAt<N>(addend + i)};
      } else {
        return {PackedAt<N>(x + i), {}};
      }
    }
    __device__ void Use(int64_t i, const Values& in) const {
      const Row<N> given = RowOf(in.x), added = RowOf(in.addend);
      Row<N> out;
#pragma unroll
      for (int k = 0; k < N; ++k) {
        out.v[k] = normal(given.v[k], k);
        if constexpr (kFused == Fused::kAddendRelu) out.v[k] += added.v[k];
        if constexpr (kFused != Fused::kNothing) out.v[k] = Relu(out.v[k]);
      }
      StoreN<N>(y + i, out.v);
    }
  };
  __device__ Columns OfColumns(int column) const {
    return {static_cast<const T*>(a.x), static_cast<const T*>(a.addend), static_cast<T*>(a.out),
            Normal<N>(a, column)};
  }
};

// ---------------------------------------------------------------- batch norm, backward

// The number of gradients of y; the kernel adds two.
enum class Gradients { kOne, kTwo };

// The gradient of ReLU's argument. Two gradients occur only with an addend.
template <int N, typename T, Fused kFused, Gradients kGradients = Gradients::kOne>
struct MaskedGradient {
  const T* x;
  const T* dy;
  const T* dy2;
  const T* y;
  T* dsum;
  Normal<N> normal;
  static constexpr int kOperands = kGradients == Gradients::kTwo  ? 4
                                   : kFused == Fused::kAddendRelu ? 3
                                                                  : 2;
  struct Values {
    Packed<N, T> x, dy, y, dy2;
  };
  struct Rows {
    Row<N> x, dy, y;
    __device__ explicit Rows(const Values& in) : x(RowOf(in.x)), dy(RowOf(in.dy)), y(RowOf(in.y)) {
      if constexpr (kGradients == Gradients::kTwo) {
        const Row<N> second = RowOf(in.dy2);
#pragma unroll
        for (int k = 0; k < N; ++k) dy.v[k] += second.v[k];
      }
    }
  };
  __device__ MaskedGradient(const BatchNormArgs& a, int column)
      : x(static_cast<const T*>(a.x)),
        dy(static_cast<const T*>(a.dy)),
        dy2(static_cast<const T*>(a.dy2)),
        y(static_cast<const T*>(a.y)),
        dsum(static_cast<T*>(a.dsum)),
        normal(a, column) {}
  __device__ Values Read(int64_t i) const {
    Values in = {PackedAt<N>(x + i), PackedAt<N>(dy + i), {}, {}};
    if constexpr (kFused == Fused::kAddendRelu) in.y = PackedAt<N>(y + i);
    if constexpr (kGradients == Gradients::kTwo) in.dy2 = PackedAt<N>(dy2 + i);
    return in;
  }
  // Forward and backward compute the same sum with the same rounding, because kernels are compiled
  // without fused multiply-adds.
  __device__ float Of(const Rows& in, int k) const {
    if constexpr (kFused == Fused::kRelu) return normal(in.x.v[k], k) > 0.0f ? in.dy.v[k] : 0.0f;
    if constexpr (kFused == Fused::kAddendRelu) return in.y.v[k] > 0.0f ? in.dy.v[k] : 0.0f;
    return in.dy.v[k];
  }
  __device__ float NormalOf(const Rows& in, int k) const {
    return (in.x.v[k] - normal.mean.v[k]) * normal.inverse.v[k];
  }
};

// Sums the gradient and gradient * normal. With an addend it stores the gradient as dsum.
template <int N, typename T, Fused kFused, Gradients kGradients>
struct BackwardValues {
  BatchNormArgs a;
  struct Columns {
    using Gradient = MaskedGradient<N, T, kFused, kGradients>;
    using Values = typename Gradient::Values;
    static constexpr int kOperands = Gradient::kOperands;
    Gradient gradient;
    Pair (&sums)[N];
    __device__ Values Read(int64_t i) const { return gradient.Read(i); }
    __device__ void Use(int64_t i, const Values& packed) const {
      const typename Gradient::Rows in(packed);
      Row<N> g;
#pragma unroll
      for (int k = 0; k < N; ++k) {
        g.v[k] = gradient.Of(in, k);
        sums[k].a += g.v[k];
        sums[k].b += g.v[k] * gradient.NormalOf(in, k);
      }
      if constexpr (kFused == Fused::kAddendRelu) StoreN<N>(gradient.dsum + i, g.v);
    }
  };
  __device__ Columns OfColumns(int column, Pair (&sums)[N]) const {
    return {MaskedGradient<N, T, kFused, kGradients>(a, column), sums};
  }
};
struct StoreGradients {
  float* dscale;
  float* dshift;
  __device__ void operator()(int column, double2 sum) const {
    dshift[column] = static_cast<float>(sum.x);
    dscale[column] = static_cast<float>(sum.y);
  }
};

template <int N, typename T, Fused kFused>
struct BackwardMap {
  BatchNormArgs a;
  struct Columns {
    using Gradient = MaskedGradient<N, T, kFused>;
    using Values = typename Gradient::Values;
    static constexpr int kOperands = Gradient::kOperands;
    Gradient gradient;
    T* dx;
    Row<N> mean_g, mean_g_normal;
    __device__ Values Read(int64_t i) const { return gradient.Read(i); }
    __device__ void Use(int64_t i, const Values& packed) const {
      const typename Gradient::Rows in(packed);
      Row<N> out;
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const float centred =
            gradient.Of(in, k) - mean_g.v[k] - gradient.NormalOf(in, k) * mean_g_normal.v[k];
        out.v[k] = gradient.normal.scale.v[k] * gradient.normal.inverse.v[k] * centred;
      }
      StoreN<N>(dx + i, out.v);
    }
  };
  __device__ Columns OfColumns(int column) const {
    Columns columns = {MaskedGradient<N, T, kFused>(a, column), static_cast<T*>(a.out),
                       ChannelsAt<N>(a.dshift, column), ChannelsAt<N>(a.dscale, column)};
    const auto rows = static_cast<float>(a.rows);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      columns.mean_g.v[k] /= rows;
      columns.mean_g_normal.v[k] /= rows;
    }
    return columns;
  }
};

// ---------------------------------------------------------------- launches

template <int N, typename T, Fused kFused>
cudaError_t InferenceOf(const BatchNormArgs& a, cudaStream_t stream) {
  return MapColumns<N>(Normalise<N, T, kFused>{a}, ColumnGeometryOf(a.rows, a.c, N), stream);
}

template <int N, typename T, Fused kFused>
cudaError_t ForwardOf(const BatchNormArgs& a, cudaStream_t stream) {
  const auto* const x = static_cast<const T*>(a.x);
  const StoreMoments<T> finish{x, static_cast<double>(a.rows), a.mean, a.variance};
  const cudaError_t error =
      Sum<N>(DeviationValues<N, T>{x}, finish, ColumnGeometryOf(a.rows, a.c, N), a.scratch,
             a.strips_done, stream);
  return error != cudaSuccess ? error : InferenceOf<N, T, kFused>(a, stream);
}

template <int N, typename T, Fused kFused, Gradients kGradients = Gradients::kOne>
cudaError_t SumGradients(const BatchNormArgs& a, const ColumnGeometry& g, cudaStream_t stream) {
  return Sum<N>(BackwardValues<N, T, kFused, kGradients>{a}, StoreGradients{a.dscale, a.dshift}, g,
                a.scratch, a.strips_done, stream);
}

template <int N, typename T, Fused kFused>
cudaError_t BackwardOf(const BatchNormArgs& a, cudaStream_t stream) {
  const ColumnGeometry g = ColumnGeometryOf(a.rows, a.c, N);
  if constexpr (kFused != Fused::kAddendRelu) {
    const cudaError_t error = SumGradients<N, T, kFused>(a, g, stream);
    return error != cudaSuccess ? error : MapColumns<N>(BackwardMap<N, T, kFused>{a}, g, stream);
  } else {
    const cudaError_t error = a.dy2 == nullptr
                                  ? SumGradients<N, T, kFused>(a, g, stream)
                                  : SumGradients<N, T, kFused, Gradients::kTwo>(a, g, stream);
    if (error != cudaSuccess) return error;
    BatchNormArgs masked = a;  // The first pass has masked dy.
    masked.dy = a.dsum;
    return MapColumns<N>(BackwardMap<N, T, Fused::kNothing>{masked}, g, stream);
  }
}

template <typename T>
bool MayReadWidest(const BatchNormArgs& a) {
  const void* const matrices[] = {a.x, a.dy, a.dy2, a.addend, a.y, a.out, a.dsum};
  for (const void* const matrix : matrices) {
    if (!IsAligned<kWidest<T>>(static_cast<const T*>(matrix))) return false;
  }
  return a.c % kWidest<T> == 0;
}

// Calls run(N as a constant, T()) with the widest reads that are allowed and the tensors' type.
template <class Run>
cudaError_t ForWidth(const BatchNormArgs& a, const Run& run) {
  return ForElement(a.type, [&](auto t) {
    using T = decltype(t);
    if (MayReadWidest<T>(a)) return run(std::integral_constant<int, kWidest<T>>(), t);
    return run(std::integral_constant<int, 1>(), t);
  });
}

template <class Run>
cudaError_t ForFused(Fused fused, const Run& run) {
  switch (fused) {
    case Fused::kNothing:
      return run(std::integral_constant<Fused, Fused::kNothing>());
    case Fused::kRelu:
      return run(std::integral_constant<Fused, Fused::kRelu>());
    case Fused::kAddendRelu:
      return run(std::integral_constant<Fused, Fused::kAddendRelu>());
  }
  return cudaErrorInvalidValue;
}

}  // namespace

int64_t ColumnSumsScratchBytes(int64_t rows, int c) {
  int64_t sums = 0;
  for (const int channels : {1, kWidest<float>, kWidest<Bf16>}) {
    const int64_t other = ColumnGeometryOf(rows, c, channels).sums();
    sums = other > sums ? other : sums;
  }
  return sums * static_cast<int64_t>(sizeof(double2));
}

cudaError_t LaunchColumnSums(const ColumnSumsArgs& args, cudaStream_t stream) {
  return ForElement(args.type, [&](auto t) {
    using T = decltype(t);
    constexpr int kWide = kWidest<T>;
    const auto* const dy = static_cast<const T*>(args.dy);
    const StoreSums finish{args.sums};
    if (args.c % kWide == 0 && IsAligned<kWide>(dy)) {
      return Sum<kWide>(GradientValues<kWide, T>{dy}, finish,
                        ColumnGeometryOf(args.rows, args.c, kWide), args.scratch, args.strips_done,
                        stream);
    }
    return Sum<1>(GradientValues<1, T>{dy}, finish, ColumnGeometryOf(args.rows, args.c, 1),
                  args.scratch, args.strips_done, stream);
  });
}

cudaError_t LaunchBatchNormForward(const BatchNormArgs& args, cudaStream_t stream) {
  return ForFused(args.fused, [&](auto fused) {
    return ForWidth(
        args, [&](auto n, auto t) { return ForwardOf<n(), decltype(t), fused()>(args, stream); });
  });
}
cudaError_t LaunchBatchNormInference(const BatchNormArgs& args, cudaStream_t stream) {
  return ForFused(args.fused, [&](auto fused) {
    return ForWidth(
        args, [&](auto n, auto t) { return InferenceOf<n(), decltype(t), fused()>(args, stream); });
  });
}
cudaError_t LaunchBatchNormBackward(const BatchNormArgs& args, cudaStream_t stream) {
  return ForFused(args.fused, [&](auto fused) {
    return ForWidth(
        args, [&](auto n, auto t) { return BackwardOf<n(), decltype(t), fused()>(args, stream); });
  });
}

}  // namespace capstan::kernels::cuda
