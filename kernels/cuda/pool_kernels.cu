// Pools; image_kernels.h has the maths, shapes and bytes of each.
#include "kernels/cuda/image_kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/window.cuh"

namespace capstan::kernels::cuda {
namespace {

template <typename T>
struct MaxForward {
  WindowShape s;
  const T* x;
  T* y;
  int32_t* index;
  __device__ void operator()(int i) const {
    const Place p = PlaceOf(i, s.out_h, s.out_w, s.c);
    const AxisRange rows = WindowOf(p.row, s, s.h);
    const AxisRange columns = WindowOf(p.column, s, s.w);
    float best = 0.0f;
    int winner = -1;
    for (int h = rows.begin; h < rows.end; ++h) {
      for (int w = columns.begin; w < columns.end; ++w) {
        const float value = Load(x + ((p.n * s.h + h) * s.w + w) * s.c + p.channel);
        if (winner >= 0 && !(value > best) && value == value) continue;  // NaN wins.
        best = value;
        winner = (h + s.padding - p.row * s.stride) * s.kernel +  //
                 (w + s.padding - p.column * s.stride);
      }
    }
    Store(y + i, best);
    index[i] = winner;
  }
};

template <typename T>
struct MaxBackward {
  WindowShape s;
  const T* dy;
  const int32_t* index;
  T* dx;
  __device__ void operator()(int i) const {
    const Place p = PlaceOf(i, s.h, s.w, s.c);
    const AxisRange rows = WindowsAt(p.row, s, s.out_h);
    const AxisRange columns = WindowsAt(p.column, s, s.out_w);
    float sum = 0.0f;
    for (int oh = rows.begin; oh < rows.end; ++oh) {
      for (int ow = columns.begin; ow < columns.end; ++ow) {
        const int at = ((p.n * s.out_h + oh) * s.out_w + ow) * s.c + p.channel;
        const int offset = (p.row + s.padding - oh * s.stride) * s.kernel +  //
                           (p.column + s.padding - ow * s.stride);
        if (index[at] == offset) sum += Load(dy + at);
      }
    }
    Store(dx + i, sum);
  }
};

template <typename T>
struct AverageForward {
  WindowShape s;
  const T* x;
  T* y;
  __device__ void operator()(int i) const {
    const Place p = PlaceOf(i, s.out_h, s.out_w, s.c);
    const AxisRange rows = WindowOf(p.row, s, s.h);
    const AxisRange columns = WindowOf(p.column, s, s.w);
    float sum = 0.0f;
    for (int h = rows.begin; h < rows.end; ++h) {
      for (int w = columns.begin; w < columns.end; ++w) {
        sum += Load(x + ((p.n * s.h + h) * s.w + w) * s.c + p.channel);
      }
    }
    const int size = (rows.end - rows.begin) * (columns.end - columns.begin);
    Store(y + i, sum / static_cast<float>(size));
  }
};

template <typename T>
struct AverageBackward {
  WindowShape s;
  const T* dy;
  T* dx;
  __device__ void operator()(int i) const {
    const Place p = PlaceOf(i, s.h, s.w, s.c);
    const AxisRange rows = WindowsAt(p.row, s, s.out_h);
    const AxisRange columns = WindowsAt(p.column, s, s.out_w);
    float sum = 0.0f;
    for (int oh = rows.begin; oh < rows.end; ++oh) {
      const AxisRange inside = WindowOf(oh, s, s.h);
      for (int ow = columns.begin; ow < columns.end; ++ow) {
        const AxisRange across = WindowOf(ow, s, s.w);
        const int size = (inside.end - inside.begin) * (across.end - across.begin);
        const int at = ((p.n * s.out_h + oh) * s.out_w + ow) * s.c + p.channel;
        sum += Load(dy + at) / static_cast<float>(size);
      }
    }
    Store(dx + i, sum);
  }
};

int64_t InputsOf(const WindowShape& s) { return s.n * s.h * s.w * s.c; }
int64_t OutputsOf(const WindowShape& s) { return s.n * s.out_h * s.out_w * s.c; }

template <typename T>
cudaError_t MaxForwardOf(const PoolArgs& a, cudaStream_t stream) {
  const MaxForward<T> op{a.shape, static_cast<const T*>(a.from), static_cast<T*>(a.to), a.index};
  return Each(op, OutputsOf(a.shape), stream);
}
template <typename T>
cudaError_t MaxBackwardOf(const PoolArgs& a, cudaStream_t stream) {
  const MaxBackward<T> op{a.shape, static_cast<const T*>(a.from), a.index, static_cast<T*>(a.to)};
  return Each(op, InputsOf(a.shape), stream);
}
template <typename T>
cudaError_t AverageForwardOf(const PoolArgs& a, cudaStream_t stream) {
  const AverageForward<T> op{a.shape, static_cast<const T*>(a.from), static_cast<T*>(a.to)};
  return Each(op, OutputsOf(a.shape), stream);
}
template <typename T>
cudaError_t AverageBackwardOf(const PoolArgs& a, cudaStream_t stream) {
  const AverageBackward<T> op{a.shape, static_cast<const T*>(a.from), static_cast<T*>(a.to)};
  return Each(op, InputsOf(a.shape), stream);
}

}  // namespace

cudaError_t LaunchMaxPoolForward(const PoolArgs& args, cudaStream_t stream) {
  return ForElement(args.type, [&](auto t) { return MaxForwardOf<decltype(t)>(args, stream); });
}
cudaError_t LaunchMaxPoolBackward(const PoolArgs& args, cudaStream_t stream) {
  return ForElement(args.type, [&](auto t) { return MaxBackwardOf<decltype(t)>(args, stream); });
}
cudaError_t LaunchAveragePoolForward(const PoolArgs& args, cudaStream_t stream) {
  return ForElement(args.type, [&](auto t) { return AverageForwardOf<decltype(t)>(args, stream); });
}
cudaError_t LaunchAveragePoolBackward(const PoolArgs& args, cudaStream_t stream) {
  return ForElement(args.type,
                    [&](auto t) { return AverageBackwardOf<decltype(t)>(args, stream); });
}

}  // namespace capstan::kernels::cuda
