#include "kernels/cpu/winograd.h"

#include <algorithm>
#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "kernels/cpu/convolution.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/tiling.h"
#include "kernels/host_memory.h"

namespace capstan::kernels {
namespace {

constexpr int64_t kTileSide = 2;  // A tile has 2x2 outputs.
constexpr int64_t kTilePixels = kTileSide * kTileSide;
constexpr int64_t kPointsMax = 36;
constexpr int64_t kTapsMax = 25;  // Weights of a window, per channel and filter.

// With fewer channels or tiles than these the transforms cost more than they save.
constexpr int64_t kTilesMin = 64;
constexpr int64_t kChannelsMin3 = 32;
constexpr int64_t kChannelBlock3 = 16;  // Other channels of 3x3 windows are for the plain tiles.
constexpr int64_t kChannelsMin5 = 16;

// The tiles that a thread transforms at once. Their factors and products stay in its cache: 0.5 MiB
// with 64 channels and 3x3.
constexpr int64_t kTilesOfBlock = 64;
// Backward weights: tiles between two additions to the sums, which take long with fewer tiles. Part
// of the order of a sum, so it depends on nothing.
constexpr int64_t kTilesOfSum = 128;
constexpr int64_t kTilesOfItem = 16;  // A thread takes this many of them.

// Unused floats between the matrices of two points. Without them, the matrices of all points would
// fall into the same sets of a cache.
constexpr int64_t kGap = 16;

using Rows = std::array<float*, kPointsMax>;

// A matrix per point, with room for as many rows of `columns` floats as Floats was asked for.
class Matrices {
 public:
  Matrices() = default;
  Matrices(float* data, int64_t points, int64_t rows, int64_t columns)
      : data_(data), points_(points), columns_(columns), step_(rows * columns + kGap) {}

  static int64_t Floats(int64_t points, int64_t rows, int64_t columns) {
    return points * (rows * columns + kGap);
  }

  float* Row(int64_t point, int64_t row) const { return data_ + point * step_ + row * columns_; }
  Rows RowsOf(int64_t row) const {
    Rows rows = {};
    for (int64_t point = 0; point < points_; ++point) rows[point] = Row(point, row);
    return rows;
  }

 private:
  float* data_ = nullptr;
  int64_t points_ = 0, columns_ = 0, step_ = 0;
};

// The images of a batch.
struct Images {
  int64_t h = 0, w = 0, c = 0;

  // Pointers to a square of pixels, [side, side]; to `outside` for those outside of the image.
  template <typename Float>
  void Square(Float* data, int64_t n, int64_t row, int64_t column, int64_t side, Float* outside,
              Float** pointers) const {
    for (int64_t i = 0; i < side; ++i) {
      const bool inside = row + i >= 0 && row + i < h;
      const int64_t line = (n * h + row + i) * w;
      for (int64_t j = 0; j < side; ++j) {
        const int64_t at = column + j;
        *pointers++ = inside && at >= 0 && at < w ? data + (line + at) * c : outside;
      }
    }
  }
};

class WinogradPlan : public CpuPlan {
 public:
  // The windows lie on images `x`; the tiles are those of images `y`.
  WinogradPlan(const OpSignature& signature, const CpuContext& context, const Images& x,
               const Images& y, int64_t padding)
      : CpuPlan(signature, context),
        x_(x),
        y_(y),
        padding_(padding),
        side_(desc().kernel + kTileSide - 1),
        points_(side_ * side_),
        taps_(desc().kernel * desc().kernel),
        transforms_(desc().kernel == 3 ? simd().winograd3 : simd().winograd5),
        tile_rows_((y.h + kTileSide - 1) / kTileSide),
        tile_columns_((y.w + kTileSide - 1) / kTileSide) {}

 protected:
  absl::Status Allocate(int64_t floats, HostFloats* memory) const {
    *memory = AllocateFloats(floats);
    if (*memory != nullptr) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat(ToString(desc()), ": no memory for ", floats, " floats of scratch"));
  }
  absl::Status AllocateZeros() {
    const int64_t channels = std::max(x_.c, y_.c);
    CAPSTAN_RETURN_IF_ERROR(Allocate(channels, &zeros_));
    std::fill_n(zeros_.get(), channels, 0.0f);
    return absl::OkStatus();
  }

  int64_t tiles_of_image() const { return tile_rows_ * tile_columns_; }
  int64_t tiles() const { return desc().n * tiles_of_image(); }

  // The pixels of x under a tile's windows.
  template <typename Float>
  void PixelsOfX(Float* x, int64_t tile, Float* outside,
                 std::array<Float*, kPointsMax>* pixels) const {
    const int64_t row = tile / tile_columns_;
    x_.Square(x, row / tile_rows_, row % tile_rows_ * kTileSide - padding_,
              tile % tile_columns_ * kTileSide - padding_, side_, outside, pixels->data());
  }
  template <typename Float>
  void PixelsOfY(Float* y, int64_t tile, Float* outside,
                 std::array<Float*, kTilePixels>* pixels) const {
    const int64_t row = tile / tile_columns_;
    y_.Square(y, row / tile_rows_, row % tile_rows_ * kTileSide, tile % tile_columns_ * kTileSide,
              kTileSide, outside, pixels->data());
  }

  void TransformImage(const float* x, int64_t tile, const Rows& rows) const {
    std::array<const float*, kPointsMax> pixels = {};
    PixelsOfX<const float>(x, tile, zeros_.get(), &pixels);
    transforms_.image(x_.c, pixels.data(), rows.data());
  }
  void TransformGradient(const float* dy, int64_t tile, const Rows& rows) const {
    std::array<const float*, kTilePixels> pixels = {};
    PixelsOfY<const float>(dy, tile, zeros_.get(), &pixels);
    transforms_.output_gradient(y_.c, pixels.data(), rows.data());
  }

  const Images x_, y_;
  const int64_t padding_;
  const int64_t side_, points_, taps_;
  const WinogradTransforms& transforms_;

 private:
  const int64_t tile_rows_, tile_columns_;  // They count the tiles of an image.
  HostFloats zeros_;                        // A pixel outside of the image.
};

Images InputOf(const OpDesc& d) { return {d.h, d.w, d.c}; }
Images OutputOf(const OpDesc& d) { return {d.out_h, d.out_w, d.out_c}; }

// An op whose sums run over channels: a block of tiles is one product per point of factors [tiles,
// depth] and transformed weights [depth, columns].
class ProductPlan : public WinogradPlan {
 public:
  using WinogradPlan::WinogradPlan;

 protected:
  absl::Status AllocateProducts(int64_t depth, int64_t columns) {
    depth_ = depth;
    columns_ = columns;
    panels_ = SplitColumns(simd(), columns);
    const int64_t padded = PaddedColumns(panels_);
    CAPSTAN_RETURN_IF_ERROR(AllocateZeros());
    CAPSTAN_RETURN_IF_ERROR(Allocate(Matrices::Floats(points_, depth, padded), &weight_data_));
    weights_ = Matrices(weight_data_.get(), points_, depth, padded);
    return Allocate(threads() * ThreadFloats(), &thread_data_);
  }

  Matrices Factors(int thread) const {
    return Matrices(ThreadData(thread), points_, kTilesOfBlock, depth_);
  }
  Matrices Products(int thread) const {
    return Matrices(ThreadData(thread) + FactorFloats(), points_, kTilesOfBlock, columns_);
  }
  // The memory for outputs outside of the image.
  float* Outside(int thread) const {
    return ThreadData(thread) + FactorFloats() + Matrices::Floats(points_, kTilesOfBlock, columns_);
  }

  // Sets the rows of one filter; `turned`: of its window turned by 180 degrees. Weights are
  // [depth_, taps, columns_].
  void FilterToRows(const float* weights, int64_t filter, bool turned) const {
    for (const Panel& panel : panels_) {
      std::array<const float*, kTapsMax> taps = {};
      for (int64_t k = 0; k < taps_; ++k) {
        const int64_t tap = turned ? taps_ - 1 - k : k;
        taps[k] = weights + (filter * taps_ + tap) * columns_ + panel.begin;
      }
      Rows rows = {};
      for (int64_t point = 0; point < points_; ++point) rows[point] = Weights(panel, point, filter);
      transforms_.weights(panel.columns, taps.data(), rows.data());
    }
  }

  // Sets the columns of a vector of filters, number `item`. Weights are [columns_, taps, depth_].
  void FiltersToColumns(const float* weights, int64_t item, int thread) const {
    const int64_t width = simd().width;
    const int64_t first = item * width;
    const int64_t count = std::min(width, columns_ - first);
    const Matrices filters(ThreadData(thread), points_, width, depth_);
    for (int64_t i = 0; i < count; ++i) {
      std::array<const float*, kTapsMax> taps = {};
      for (int64_t k = 0; k < taps_; ++k) taps[k] = weights + ((first + i) * taps_ + k) * depth_;
      transforms_.weights(depth_, taps.data(), filters.RowsOf(i).data());
    }
    const Panel& panel = panels_[static_cast<size_t>(first / (simd().vectors_max * width))];
    for (int64_t point = 0; point < points_; ++point) {
      simd().transpose(count, depth_, filters.Row(point, 0), depth_,
                       Weights(panel, point, 0) + first - panel.begin, panel.padded);
    }
  }

  void Multiply(const Matrices& factors, int64_t count, const Matrices& products) const {
    for (int64_t point = 0; point < points_; ++point) {
      for (const Panel& panel : panels_) {
        TileArgs args;
        args.b = Weights(panel, point, 0);
        args.b_step = panel.padded;
        args.length = depth_;
        RunTiles(
            simd(), panel, args, count, [&](int64_t row) { return factors.Row(point, row); },
            [&](int64_t row) { return products.Row(point, row) + panel.begin; });
      }
    }
  }

 private:
  // The weights of a point lie panel by panel. All panels but the last have no padding.
  float* Weights(const Panel& panel, int64_t point, int64_t row) const {
    return weights_.Row(point, 0) + panel.begin * depth_ + row * panel.padded;
  }

  // The factors and products of a block, and a pixel. FiltersToColumns uses the same memory before.
  int64_t ThreadFloats() const {
    const int64_t block =
        FactorFloats() + Matrices::Floats(points_, kTilesOfBlock, columns_) + columns_;
    return std::max(block, Matrices::Floats(points_, simd().width, depth_));
  }
  int64_t FactorFloats() const { return Matrices::Floats(points_, kTilesOfBlock, depth_); }
  float* ThreadData(int thread) const { return thread_data_.get() + thread * ThreadFloats(); }

  int64_t depth_ = 0, columns_ = 0;
  std::vector<Panel> panels_;
  HostFloats weight_data_, thread_data_;
  Matrices weights_;
};

// Forward, and backward data of 3x3: the same on the images dy, with other weights and padding.
class Product : public ProductPlan {
 public:
  Product(const OpSignature& signature, const CpuContext& context)
      : Product(signature, context, signature.desc.kind == OpKind::kConvolutionForward) {}

  absl::Status Init() { return AllocateProducts(x_.c, y_.c); }

  absl::Status Execute(Views in, Views out, const RunOptions&) override {
    const float* weights = in[1].f32();
    if (forward_) {
      ParallelFor(threads(), (y_.c + simd().width - 1) / simd().width,
                  [&](int64_t item, int thread) { FiltersToColumns(weights, item, thread); });
    } else {
      ParallelFor(threads(), x_.c,
                  [&](int64_t filter, int) { FilterToRows(weights, filter, /*turned=*/true); });
    }
    const float* x = in[0].f32();
    const float* bias = forward_ ? FloatsOf(in, 2) : nullptr;
    float* y = out[0].f32();
    const int64_t size = std::min(kTilesOfBlock, (tiles() + threads() - 1) / threads());
    ParallelFor(threads(), (tiles() + size - 1) / size, [&](int64_t item, int thread) {
      const int64_t first = item * size;
      RunBlock(x, bias, first, std::min(size, tiles() - first), thread, y);
    });
    return absl::OkStatus();
  }

 private:
  Product(const OpSignature& signature, const CpuContext& context, bool forward)
      : ProductPlan(
            signature, context, forward ? InputOf(signature.desc) : OutputOf(signature.desc),
            forward ? OutputOf(signature.desc) : InputOf(signature.desc),
            forward ? signature.desc.padding : signature.desc.kernel - 1 - signature.desc.padding),
        forward_(forward) {}

  void RunBlock(const float* x, const float* bias, int64_t first, int64_t count, int thread,
                float* y) const {
    const Matrices factors = Factors(thread);
    const Matrices products = Products(thread);
    for (int64_t i = 0; i < count; ++i) TransformImage(x, first + i, factors.RowsOf(i));
    Multiply(factors, count, products);
    for (int64_t i = 0; i < count; ++i) {
      StoreTile(products.RowsOf(i), first + i, bias, Outside(thread), y);
    }
  }

  void StoreTile(const Rows& products, int64_t tile, const float* bias, float* outside,
                 float* y) const {
    std::array<float*, kTilePixels> pixels = {};
    PixelsOfY(y, tile, outside, &pixels);
    transforms_.outputs(y_.c, products.data(), pixels.data());
    for (float* const pixel : pixels) {
      if (bias != nullptr) simd().add(y_.c, pixel, bias, pixel);
      if (desc().fuse_relu) simd().relu(y_.c, pixel, pixel);
    }
  }

  const bool forward_;
};

// Backward data of 5x5. With the turned window, images without padding would have many more tiles.
class ImageGradient : public ProductPlan {
 public:
  ImageGradient(const OpSignature& signature, const CpuContext& context)
      : ProductPlan(signature, context, InputOf(signature.desc), OutputOf(signature.desc),
                    signature.desc.padding) {}

  absl::Status Init() { return AllocateProducts(y_.c, x_.c); }

  absl::Status Execute(Views in, Views out, const RunOptions&) override {
    const float* dy = in[0].f32();
    const float* weights = in[1].f32();
    float* dx = out[0].f32();
    ParallelFor(threads(), y_.c,
                [&](int64_t filter, int) { FilterToRows(weights, filter, /*turned=*/false); });
    // Tiles overlap in dx, so a thread computes whole images.
    ParallelFor(threads(), desc().n, [&](int64_t n, int thread) { RunImage(dy, n, thread, dx); });
    return absl::OkStatus();
  }

 private:
  void RunImage(const float* dy, int64_t n, int thread, float* dx) const {
    const int64_t floats = x_.h * x_.w * x_.c;
    std::fill_n(dx + n * floats, floats, 0.0f);
    std::fill_n(Outside(thread), x_.c, 0.0f);
    const int64_t end = (n + 1) * tiles_of_image();
    for (int64_t first = n * tiles_of_image(); first < end; first += kTilesOfBlock) {
      RunBlock(dy, first, std::min(kTilesOfBlock, end - first), thread, dx);
    }
  }

  void RunBlock(const float* dy, int64_t first, int64_t count, int thread, float* dx) const {
    const Matrices factors = Factors(thread);
    const Matrices products = Products(thread);
    for (int64_t i = 0; i < count; ++i) TransformGradient(dy, first + i, factors.RowsOf(i));
    Multiply(factors, count, products);
    for (int64_t i = 0; i < count; ++i) {
      std::array<float*, kPointsMax> pixels = {};
      PixelsOfX(dx, first + i, Outside(thread), &pixels);
      transforms_.image_gradient(x_.c, products.RowsOf(i).data(), pixels.data());
    }
  }
};

// The sum of each point runs over the tiles: [out_c, c] per point.
class WeightGradient : public WinogradPlan {
 public:
  WeightGradient(const OpSignature& signature, const CpuContext& context)
      : WinogradPlan(signature, context, InputOf(signature.desc), OutputOf(signature.desc),
                     signature.desc.padding) {}

  absl::Status Init() {
    CAPSTAN_RETURN_IF_ERROR(AllocateZeros());
    panels_ = SplitColumns(simd(), x_.c);
    const int64_t image = Matrices::Floats(points_, kTilesOfSum, x_.c);
    const int64_t gradient = Matrices::Floats(points_, kTilesOfSum, y_.c);
    const int64_t sums = Matrices::Floats(points_, y_.c, x_.c);
    CAPSTAN_RETURN_IF_ERROR(Allocate(image + gradient + sums + y_.c, &memory_));
    images_ = Matrices(memory_.get(), points_, kTilesOfSum, x_.c);
    gradients_ = Matrices(memory_.get() + image, points_, kTilesOfSum, y_.c);
    sums_ = Matrices(memory_.get() + image + gradient, points_, y_.c, x_.c);
    bias_sum_ = memory_.get() + image + gradient + sums;
    return absl::OkStatus();
  }

  absl::Status Execute(Views in, Views out, const RunOptions&) override {
    const float* x = in[0].f32();
    const float* dy = in[1].f32();
    float* dweight = out[0].f32();
    for (int64_t first = 0; first < tiles(); first += kTilesOfSum) {
      const int64_t count = std::min(kTilesOfSum, tiles() - first);
      ParallelForChunks(threads(), count, kTilesOfItem, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          TransformImage(x, first + i, images_.RowsOf(i));
          TransformGradient(dy, first + i, gradients_.RowsOf(i));
        }
      });
      ParallelFor(threads(), points_,
                  [&](int64_t point, int) { AddProducts(point, count, first > 0); });
    }
    ParallelFor(threads(), y_.c, [&](int64_t filter, int) { StoreFilter(filter, dweight); });
    if (float* dbias = FloatsOf(out, 1); dbias != nullptr) {
      SumBiasGradient(simd(), desc(), dy, bias_sum_, dbias);
    }
    return absl::OkStatus();
  }

 private:
  void AddProducts(int64_t point, int64_t count, bool accumulate) const {
    for (const Panel& panel : panels_) {
      TileArgs args;
      args.a_step = y_.c;
      args.b = images_.Row(point, 0) + panel.begin;
      args.b_step = x_.c;
      args.length = count;
      args.accumulate = accumulate;
      RunTiles(
          simd(), panel, args, y_.c,
          [&](int64_t filter) { return gradients_.Row(point, 0) + filter; },
          [&](int64_t filter) { return sums_.Row(point, filter) + panel.begin; });
    }
  }

  void StoreFilter(int64_t filter, float* dweight) const {
    std::array<float*, kTapsMax> taps = {};
    for (int64_t k = 0; k < taps_; ++k) taps[k] = dweight + (filter * taps_ + k) * x_.c;
    transforms_.weight_gradient(x_.c, sums_.RowsOf(filter).data(), taps.data());
  }

  std::vector<Panel> panels_;  // The columns are the channels of x.
  HostFloats memory_;
  Matrices images_, gradients_, sums_;
  float* bias_sum_ = nullptr;  // The bias gradient of one image.
};

}  // namespace

bool PrefersWinograd(const OpDesc& desc) {
  const int64_t rows = (desc.out_h + kTileSide - 1) / kTileSide;
  const int64_t columns = (desc.out_w + kTileSide - 1) / kTileSide;
  if (desc.stride != 1 || desc.n * rows * columns < kTilesMin) return false;
  const int64_t channels = std::min(desc.c, desc.out_c);
  if (desc.kernel == 5) {
    return channels >= kChannelsMin5 && desc.kind != OpKind::kConvolutionBackwardWeights;
  }
  return desc.kernel == 3 && channels >= kChannelsMin3 && desc.c % kChannelBlock3 == 0 &&
         desc.out_c % kChannelBlock3 == 0;
}

absl::StatusOr<std::unique_ptr<CpuPlan>> MakeWinogradPlan(const OpSignature& signature,
                                                          const CpuContext& context) {
  const OpDesc& desc = signature.desc;
  if (desc.kind == OpKind::kConvolutionBackwardWeights) {
    return MakeCpuPlan<WeightGradient>(signature, context);
  }
  if (desc.kind == OpKind::kConvolutionBackwardData && desc.kernel == 5) {
    return MakeCpuPlan<ImageGradient>(signature, context);
  }
  return MakeCpuPlan<Product>(signature, context);
}

}  // namespace capstan::kernels
