#include "kernels/cpu/convolution.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/tiling.h"
#include "kernels/host_memory.h"

namespace capstan::kernels {
namespace {

// Sizes of a convolution's arrays, in floats. If there is padding, each image is first copied into
// a padded one, so that the inner loops see no borders.
struct Geometry {
  explicit Geometry(const OpDesc& d)
      : row((d.w + 2 * d.padding) * d.c),
        image((d.h + 2 * d.padding) * row),
        segment(d.kernel * d.c),
        positions(d.out_h * d.out_w),
        x_image(d.h * d.w * d.c),
        y_image(positions * d.out_c) {}

  int64_t row;        // One row of pixels of a padded image.
  int64_t image;      // A padded image.
  int64_t segment;    // One row of a window: contiguous in the image and in the weights.
  int64_t positions;  // The number of positions in an output image.
  int64_t x_image;    // An image without padding.
  int64_t y_image;    // An output image.
};

class ConvolutionPlan : public CpuPlan {
 public:
  ConvolutionPlan(const OpSignature& signature, const CpuContext& context)
      : CpuPlan(signature, context), g_(signature.desc) {}

 protected:
  // Allocates one padded image per thread if there is padding, and `floats` more (see scratch()).
  absl::Status AllocateScratch(int64_t floats) {
    const int64_t padded = desc().padding == 0 ? 0 : threads() * g_.image;
    memory_ = AllocateFloats(padded + floats);
    if (memory_ == nullptr) {
      return absl::ResourceExhaustedError(absl::StrCat(ToString(desc()), ": no memory for ",
                                                       padded + floats, " floats of scratch"));
    }
    std::fill_n(memory_.get(), padded, 0.0f);
    scratch_ = memory_.get() + padded;
    return absl::OkStatus();
  }
  float* scratch() const { return scratch_; }

  float* PaddedImage(int thread) const { return memory_.get() + thread * g_.image; }

  // Returns the image with its padding: `x` itself if there is no padding, else a copy in the
  // thread's padded image, whose border stays zero.
  const float* Pad(const float* x, int thread) const {
    const OpDesc& d = desc();
    if (d.padding == 0) return x;
    float* padded = PaddedImage(thread);
    for (int64_t h = 0; h < d.h; ++h) {
      std::copy_n(x + h * d.w * d.c, d.w * d.c,
                  padded + (h + d.padding) * g_.row + d.padding * d.c);
    }
    return padded;
  }

  const Geometry g_;

 private:
  HostFloats memory_;
  float* scratch_ = nullptr;
};

// y[position, filter]: rows are output positions (windows of x), columns are filters, the sum runs
// over the window's rows.
class Forward : public ConvolutionPlan {
 public:
  using ConvolutionPlan::ConvolutionPlan;

  absl::Status Init() {
    const OpDesc& d = desc();
    panels_ = SplitColumns(simd(), d.out_c);
    return AllocateScratch(d.kernel * g_.segment * PaddedColumns(panels_));
  }

  absl::Status Execute(Views in, Views out, const RunOptions&) override {
    const OpDesc& d = desc();
    const int64_t depth = d.kernel * g_.segment;
    float* packed = scratch();
    for (const Panel& panel : panels_) {
      PackPanel(panel, depth, in[1].f32(), 1, depth, packed);
      packed += depth * panel.padded;
    }
    const float* x = in[0].f32();
    float* y = out[0].f32();
    const float* bias = FloatsOf(in, 2);
    ParallelFor(threads(), d.n, [&](int64_t n, int thread) {
      RunImage(Pad(x + n * g_.x_image, thread), bias, y + n * g_.y_image);
    });
    return absl::OkStatus();
  }

 private:
  void RunImage(const float* x, const float* bias, float* y) const {
    const OpDesc& d = desc();
    const float* packed = scratch();
    for (const Panel& panel : panels_) {
      TileArgs args;
      args.a_segment = g_.row;
      args.b = packed;
      args.b_segment = g_.segment * panel.padded;
      args.b_step = panel.padded;
      args.segments = d.kernel;
      args.length = g_.segment;
      args.bias = bias == nullptr ? nullptr : bias + panel.begin;
      args.relu = d.fuse_relu;
      // RunTiles asks for the windows in order: left to right, then down.
      const float* row = x;
      int64_t ow = 0;
      const auto next_window = [&](int64_t) {
        const float* window = row + ow * d.stride * d.c;
        if (++ow == d.out_w) {
          ow = 0;
          row += d.stride * g_.row;
        }
        return window;
      };
      RunTiles(simd(), panel, args, g_.positions, next_window,
               [&](int64_t p) { return y + p * d.out_c + panel.begin; });
      packed += d.kernel * g_.segment * panel.padded;
    }
  }

  std::vector<Panel> panels_;  // The columns are the filters.
};

// dx[window, segment column] += dy[position, :] * weight[:, kernel row, segment column]. Rows are
// output positions one below the other; their windows' rows do not overlap in memory.
class BackwardData : public ConvolutionPlan {
 public:
  using ConvolutionPlan::ConvolutionPlan;

  absl::Status Init() {
    const OpDesc& d = desc();
    panels_ = SplitColumns(simd(), g_.segment);
    return AllocateScratch(d.kernel * d.out_c * PaddedColumns(panels_));
  }

  absl::Status Execute(Views in, Views out, const RunOptions&) override {
    const OpDesc& d = desc();
    float* packed = scratch();
    for (const Panel& panel : panels_) {
      for (int64_t k = 0; k < d.kernel; ++k) {
        PackPanel(panel, d.out_c, in[1].f32() + k * g_.segment, d.kernel * g_.segment, 1, packed);
        packed += d.out_c * panel.padded;
      }
    }
    const float* dy = in[0].f32();
    float* dx = out[0].f32();
    ParallelFor(threads(), d.n, [&](int64_t n, int thread) {
      float* image = dx + n * g_.x_image;
      float* target = d.padding == 0 ? image : PaddedImage(thread);
      std::fill_n(target, g_.image, 0.0f);
      RunImage(dy + n * g_.y_image, target);
      if (d.padding != 0) CutPadding(target, image);
    });
    return absl::OkStatus();
  }

 private:
  void RunImage(const float* dy, float* dx) const {
    const OpDesc& d = desc();
    const float* packed = scratch();
    for (const Panel& panel : panels_) {
      for (int64_t k = 0; k < d.kernel; ++k) {
        TileArgs args;
        args.b = packed;
        args.b_step = panel.padded;
        args.length = d.out_c;
        args.accumulate = true;
        for (int64_t ow = 0; ow < d.out_w; ++ow) {
          const float* from = dy + ow * d.out_c;
          float* to = dx + k * g_.row + ow * d.stride * d.c + panel.begin;
          RunTiles(
              simd(), panel, args, d.out_h,
              [&](int64_t oh) { return from + oh * d.out_w * d.out_c; },
              [&](int64_t oh) { return to + oh * d.stride * g_.row; });
        }
        packed += d.out_c * panel.padded;
      }
    }
  }

  void CutPadding(const float* padded, float* image) const {
    const OpDesc& d = desc();
    for (int64_t h = 0; h < d.h; ++h) {
      std::copy_n(padded + (h + d.padding) * g_.row + d.padding * d.c, d.w * d.c,
                  image + h * d.w * d.c);
    }
  }

  std::vector<Panel> panels_;  // The columns are those of a segment.
};

// dweight[filter, segment column] of each kernel row: the sum runs over output positions, image by
// image. Rows are filters and columns are those of the segment. They are swapped (swapped_) if
// filters fill the vectors better, for example in a first layer with one channel.
class BackwardWeights : public ConvolutionPlan {
 public:
  using ConvolutionPlan::ConvolutionPlan;

  absl::Status Init() {
    const OpDesc& d = desc();
    panels_ = SplitColumns(simd(), g_.segment);
    const std::vector<Panel> filter_panels = SplitColumns(simd(), d.out_c);
    swapped_ = PaddedColumns(filter_panels) * g_.segment < PaddedColumns(panels_) * d.out_c;
    if (swapped_) panels_ = filter_panels;
    return AllocateScratch(d.out_c + (swapped_ ? d.kernel * g_.segment * d.out_c : 0));
  }

  absl::Status Execute(Views in, Views out, const RunOptions&) override {
    const OpDesc& d = desc();
    const float* x = in[0].f32();
    const float* dy = in[1].f32();
    float* dweight = out[0].f32();
    if (d.n == 0) std::fill_n(dweight, out[0].count, 0.0f);
    float* transposed = scratch() + d.out_c;
    // A thread computes rows of the result over all images, so the order of a sum does not depend
    // on the threads.
    const int64_t rows = swapped_ ? g_.segment : d.out_c;
    const int64_t share = (rows + threads() - 1) / threads();
    ParallelFor(threads(), (rows + share - 1) / share, [&](int64_t item, int thread) {
      const int64_t begin = item * share;
      const int64_t count = std::min(share, rows - begin);
      for (int64_t n = 0; n < d.n; ++n) {
        const float* image = Pad(x + n * g_.x_image, thread);
        const float* dy_image = dy + n * g_.y_image;
        if (swapped_) {
          RunSwapped(image, dy_image, begin, count, n > 0, transposed);
        } else {
          RunImage(image, dy_image, begin, count, n > 0, dweight);
        }
      }
    });
    if (swapped_ && d.n > 0) Transpose(transposed, dweight);
    if (float* dbias = FloatsOf(out, 1); dbias != nullptr) {
      SumBiasGradient(simd(), d, dy, scratch(), dbias);
    }
    return absl::OkStatus();
  }

 private:
  void RunImage(const float* x, const float* dy, int64_t begin, int64_t count, bool accumulate,
                float* dweight) const {
    const OpDesc& d = desc();
    TileArgs args;
    args.a_segment = d.out_w * d.out_c;
    args.a_step = d.out_c;
    args.b_segment = d.stride * g_.row;
    args.b_step = d.stride * d.c;
    args.segments = d.out_h;
    args.length = d.out_w;
    args.accumulate = accumulate;
    for (int64_t k = 0; k < d.kernel; ++k) {
      for (const Panel& panel : panels_) {
        args.b = x + k * g_.row + panel.begin;
        float* to = dweight + k * g_.segment + panel.begin;
        RunTiles(
            simd(), panel, args, count, [&](int64_t o) { return dy + begin + o; },
            [&](int64_t o) { return to + (begin + o) * d.kernel * g_.segment; });
      }
    }
  }

  void RunSwapped(const float* x, const float* dy, int64_t begin, int64_t count, bool accumulate,
                  float* transposed) const {
    const OpDesc& d = desc();
    TileArgs args;
    args.a_segment = d.stride * g_.row;
    args.a_step = d.stride * d.c;
    args.b_segment = d.out_w * d.out_c;
    args.b_step = d.out_c;
    args.segments = d.out_h;
    args.length = d.out_w;
    args.accumulate = accumulate;
    for (int64_t k = 0; k < d.kernel; ++k) {
      for (const Panel& panel : panels_) {
        args.b = dy + panel.begin;
        float* to = transposed + k * g_.segment * d.out_c + panel.begin;
        RunTiles(
            simd(), panel, args, count, [&](int64_t r) { return x + k * g_.row + begin + r; },
            [&](int64_t r) { return to + (begin + r) * d.out_c; });
      }
    }
  }

  void Transpose(const float* transposed, float* dweight) const {
    const int64_t depth = desc().kernel * g_.segment;
    for (int64_t o = 0; o < desc().out_c; ++o) {
      for (int64_t k = 0; k < depth; ++k) dweight[o * depth + k] = transposed[k * desc().out_c + o];
    }
  }

  std::vector<Panel> panels_;
  bool swapped_ = false;
};

}  // namespace

// Adds up each image by itself first. Sums stay short, so fp32 is accurate enough.
void SumBiasGradient(const Simd& simd, const OpDesc& desc, const float* dy, float* scratch,
                     float* dbias) {
  const int64_t positions = desc.out_h * desc.out_w;
  std::fill_n(dbias, desc.out_c, 0.0f);
  for (int64_t n = 0; n < desc.n; ++n) {
    std::fill_n(scratch, desc.out_c, 0.0f);
    simd.add_rows(positions, desc.out_c, dy + n * positions * desc.out_c, scratch);
    for (int64_t o = 0; o < desc.out_c; ++o) dbias[o] += scratch[o];
  }
}

absl::StatusOr<std::unique_ptr<CpuPlan>> MakeConvolutionPlan(const OpSignature& signature,
                                                             const CpuContext& context) {
  switch (signature.desc.kind) {
    case OpKind::kConvolutionForward:
      return MakeCpuPlan<Forward>(signature, context);
    case OpKind::kConvolutionBackwardData:
      return MakeCpuPlan<BackwardData>(signature, context);
    default:
      return MakeCpuPlan<BackwardWeights>(signature, context);
  }
}

}  // namespace capstan::kernels
