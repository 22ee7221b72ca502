#include "kernels/op.h"

#include <cstddef>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"

namespace capstan::kernels {
namespace {

const char* LossName(OutputLoss loss) {
  switch (loss) {
    case OutputLoss::kSquared:
      return "squared";
    case OutputLoss::kHuber:
      return "huber";
    case OutputLoss::kQuantile:
      return "quantile";
    case OutputLoss::kSigmoid:
      return "sigmoid";
  }
  return "unknown_loss";
}

// Writes the shapes like "28x28x1 -> 24x24x20 kernel 5 stride 1 padding 0" or "800 -> 500".
std::string Shapes(const OpDesc& d, Shown shown) {
  const std::string image = absl::StrCat(d.h, "x", d.w, "x", d.c);
  switch (shown) {
    case Shown::kImage:
      return image;
    case Shown::kWindow:
      return absl::StrCat(image, " -> ", d.out_h, "x", d.out_w, "x", d.out_c, " kernel ", d.kernel,
                          " stride ", d.stride, " padding ", d.padding);
    case Shown::kUnits:
      return absl::StrCat(d.c, " -> ", d.out_c);
    case Shown::kEpsilon:
      return absl::StrCat(image, " epsilon ", d.epsilon);
    case Shown::kActivation:
      return absl::StrCat(image, " ", NameOf(d.activation));
    case Shown::kRate:
      return absl::StrCat(image, " rate ", d.dropout_rate);
    case Shown::kClasses:
      return absl::StrCat(d.c, " classes");
    case Shown::kLoss:
      return absl::StrCat(d.c, " outputs ", LossName(d.loss), " ", d.loss_parameter);
    case Shown::kRows:
      return absl::StrCat(d.c, " of ", d.rows, " rows x ", d.out_c);
  }
  return image;
}

}  // namespace

std::string ToString(const OpDesc& desc) {
  const auto index = static_cast<size_t>(desc.kind);
  const bool known = index < std::size(kOpTraits);
  return absl::StrCat(known ? kOpTraits[index].name : "unknown_op", " n=", desc.n, " ",
                      Shapes(desc, known ? kOpTraits[index].shown : Shown::kImage),
                      desc.has_bias ? " bias" : "", desc.has_addend ? " addend" : "",
                      desc.has_dy2 ? " dy2" : "", desc.fuse_relu ? " relu" : "",
                      desc.has_weights ? " weights" : "");
}

}  // namespace capstan::kernels
