// Fully connected layers for the CPU backend, as matrix products over register tiles.
//
// Thread safety: as Plan.
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/cpu_plan.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/tiling.h"
#include "kernels/host_memory.h"

namespace capstan::kernels {
namespace {

constexpr int64_t kUnitsOfItem = 48;  // A thread takes this many units: whole tiles of 6 or 8.

class FullyConnectedPlan : public CpuPlan {
 public:
  using CpuPlan::CpuPlan;

 protected:
  absl::Status AllocateScratch(int64_t floats) {
    scratch_ = AllocateFloats(floats);
    if (scratch_ != nullptr) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat(ToString(desc()), ": no memory for ", floats, " floats of scratch"));
  }
  float* scratch() const { return scratch_.get(); }

 private:
  HostFloats scratch_;
};

// Computes the transpose of y, [units, n]: then only x, which is small, must be packed, and the
// weights are read in place. StoreTransposed transposes the tiles back.
class Forward : public FullyConnectedPlan {
 public:
  using FullyConnectedPlan::FullyConnectedPlan;

  absl::Status Init() {
    panels_ = SplitColumns(simd(), desc().n);
    return AllocateScratch(desc().c * PaddedColumns(panels_));
  }

  absl::Status Execute(Views in, Views out, const RunOptions&) override {
    const OpDesc& d = desc();
    float* packed = scratch();
    for (const Panel& panel : panels_) {
      PackPanel(panel, d.c, in[0].f32(), 1, d.c, packed);
      packed += d.c * panel.padded;
    }
    ParallelForChunks(threads(), d.out_c, kUnitsOfItem, [&](int64_t begin, int64_t end) {
      RunUnits(begin, end, in[1].f32(), FloatsOf(in, 2), out[0].f32());
    });
    return absl::OkStatus();
  }

 private:
  void RunUnits(int64_t begin, int64_t end, const float* weight, const float* bias,
                float* y) const {
    const OpDesc& d = desc();
    float tile[kTileRowsMax * kTileVectorsMax * 16];
    const float* packed = scratch();
    for (const Panel& panel : panels_) {
      TileArgs args;
      args.b = packed;
      args.b_step = panel.padded;
      args.length = d.c;
      int64_t height = 0;
      RunTiles(
          simd(), panel, args, end - begin, [&](int64_t u) { return weight + (begin + u) * d.c; },
          [&](int64_t) { return tile + height++ * panel.padded; },
          [&](int64_t row, int64_t rows) {
            StoreTransposed(panel, tile, begin + row, rows, bias, y);
            height = 0;
          });
      packed += d.c * panel.padded;
    }
  }

  void StoreTransposed(const Panel& panel, const float* tile, int64_t unit, int64_t rows,
                       const float* bias, float* y) const {
    const OpDesc& d = desc();
    for (int64_t j = 0; j < panel.columns; ++j) {
      float* to = y + (panel.begin + j) * d.out_c + unit;
      for (int64_t r = 0; r < rows; ++r) {
        float value = tile[r * panel.padded + j];
        if (bias != nullptr) value += bias[unit + r];
        to[r] = d.fuse_relu && value < 0.0f ? 0.0f : value;
      }
    }
  }

  std::vector<Panel> panels_;  // The columns are the samples of the batch.
};

// A gradient whose columns are the inputs c.
class Backward : public FullyConnectedPlan {
 public:
  using FullyConnectedPlan::FullyConnectedPlan;

  absl::Status Init() {
    panels_ = SplitColumns(simd(), desc().c);
    return absl::OkStatus();
  }

 protected:
  // to[row, column] = sum over i < args.length of left(row)[i * args.a_step] * right[i, column].
  template <typename Left>
  void Multiply(TileArgs args, const float* right, int64_t rows, const Left& left,
                float* to) const {
    args.b_step = desc().c;
    ParallelFor(threads(), static_cast<int64_t>(panels_.size()), [&](int64_t item, int) {
      const Panel& panel = panels_[static_cast<size_t>(item)];
      TileArgs panel_args = args;
      panel_args.b = right + panel.begin;
      RunTiles(simd(), panel, panel_args, rows, left,
               [&](int64_t row) { return to + row * desc().c + panel.begin; });
    });
  }

 private:
  std::vector<Panel> panels_;
};

// dx[n, c]: rows are samples, the sum runs over units.
class BackwardData : public Backward {
 public:
  using Backward::Backward;

  absl::Status Execute(Views in, Views out, const RunOptions&) override {
    const OpDesc& d = desc();
    const float* dy = in[0].f32();
    TileArgs args;
    args.length = d.out_c;
    Multiply(
        args, in[1].f32(), d.n, [&](int64_t n) { return dy + n * d.out_c; }, out[0].f32());
    return absl::OkStatus();
  }
};

// dweight[unit, c]: rows are units, the sum runs over samples.
class BackwardWeights : public Backward {
 public:
  using Backward::Backward;

  absl::Status Execute(Views in, Views out, const RunOptions&) override {
    const OpDesc& d = desc();
    const float* dy = in[1].f32();
    TileArgs args;
    args.a_step = d.out_c;
    args.length = d.n;
    Multiply(
        args, in[0].f32(), d.out_c, [&](int64_t unit) { return dy + unit; }, out[0].f32());
    if (float* dbias = FloatsOf(out, 1); dbias != nullptr) {
      std::fill_n(dbias, d.out_c, 0.0f);
      simd().add_rows(d.n, d.out_c, dy, dbias);
    }
    return absl::OkStatus();
  }
};

constexpr CpuOp kOps[] = {
    {OpKind::kFullyConnectedForward, MakeCpuPlan<Forward>},
    {OpKind::kFullyConnectedBackwardData, MakeCpuPlan<BackwardData>},
    {OpKind::kFullyConnectedBackwardWeights, MakeCpuPlan<BackwardWeights>},
};

}  // namespace

absl::Span<const CpuOp> FullyConnectedOps() { return kOps; }

}  // namespace capstan::kernels
