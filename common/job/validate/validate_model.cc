#include "common/job/validate/validate_model.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/data/dataset.h"
#include "common/job/validate/validate_sparse_model.h"
#include "common/model/plan_model.h"
#include "common/model/zoo.h"

namespace capstan {
namespace {

constexpr absl::string_view kInputName = "input";

void ValidatePooling(const v1::Pooling& pooling, FieldChecker check) {
  const bool kernel = check.IntegerAtLeast("kernel", pooling.kernel(), 1, Presence::kImplicit);
  if (pooling.has_stride()) {
    check.IntegerAtLeast("stride", pooling.stride(), 1, Presence::kExplicit);
  }
  if (!pooling.has_padding()) return;
  if (check.IntegerAtLeast("padding", pooling.padding(), 0, Presence::kExplicit) && kernel &&
      pooling.padding() >= pooling.kernel()) {
    check.Wrong("padding", absl::StrCat(pooling.padding()),
                absl::StrCat("less than the kernel, ", pooling.kernel()));
  }
}

void ValidateInitial(const v1::InitialWeights& initial, FieldChecker check) {
  if (!initial.has_normal_std()) return;
  check.Real("normal_std", initial.normal_std(), AtLeast(0), Presence::kExplicit);
}

void ValidateConvolution(const v1::Convolution& convolution, FieldChecker check) {
  check.IntegerAtLeast("filters", convolution.filters(), 1, Presence::kImplicit);
  check.IntegerAtLeast("kernel", convolution.kernel(), 1, Presence::kImplicit);
  if (convolution.has_stride()) {
    check.IntegerAtLeast("stride", convolution.stride(), 1, Presence::kExplicit);
  }
  if (convolution.has_padding()) {
    check.IntegerAtLeast("padding", convolution.padding(), 0, Presence::kExplicit);
  }
  ValidateInitial(convolution.initial(), check.In("initial"));
}

template <typename Normalization>
void ValidateEpsilon(const Normalization& layer, FieldChecker check) {
  if (layer.has_epsilon()) check.Real("epsilon", layer.epsilon(), Above(0), Presence::kExplicit);
}

void ValidateBatchNormalization(const v1::BatchNormalization& layer, FieldChecker check) {
  if (layer.has_momentum()) {
    check.Real("momentum", layer.momentum(), OpenClosed(0, 1), Presence::kExplicit);
  }
  ValidateEpsilon(layer, check);
}

void ValidateLayerKind(const v1::Layer& layer, FieldChecker check) {
  switch (layer.kind_case()) {
    case v1::Layer::kConvolution:
      return ValidateConvolution(layer.convolution(), check.In("convolution"));
    case v1::Layer::kMaxPooling:
      return ValidatePooling(layer.max_pooling(), check.In("max_pooling"));
    case v1::Layer::kAveragePooling:
      return ValidatePooling(layer.average_pooling(), check.In("average_pooling"));
    case v1::Layer::kFullyConnected:
      check.IntegerAtLeast("fully_connected.units", layer.fully_connected().units(), 1,
                           Presence::kImplicit);
      return ValidateInitial(layer.fully_connected().initial(),
                             check.In("fully_connected.initial"));
    case v1::Layer::kBatchNormalization:
      return ValidateBatchNormalization(layer.batch_normalization(),
                                        check.In("batch_normalization"));
    case v1::Layer::kDropout:
      check.Real("dropout.rate", layer.dropout().rate(), ClosedOpen(0, 1), Presence::kExplicit);
      return;
    case v1::Layer::kEmbedding:
      check.IntegerAtLeast("embedding.rows", layer.embedding().rows(), 1, Presence::kImplicit);
      check.IntegerAtLeast("embedding.dim", layer.embedding().dim(), 1, Presence::kImplicit);
      return;
    case v1::Layer::kRmsNormalization:
      return ValidateEpsilon(layer.rms_normalization(), check.In("rms_normalization"));
    case v1::Layer::kLayerNormalization:
      return ValidateEpsilon(layer.layer_normalization(), check.In("layer_normalization"));
    case v1::Layer::KIND_NOT_SET:
      return check.Missing("", absl::StrCat("one of ", LayerKindNames()));
    default:
      return;
  }
}

std::string Names(int count) { return absl::StrCat(count, count == 1 ? " name" : " names"); }

// `before` holds the names of the layers above this one.
void ValidateLayerInputs(const v1::Layer& layer, const std::set<std::string>& before,
                         FieldChecker check) {
  const int count = layer.inputs_size();
  if (layer.has_add()) {
    if (count != 2) check.Wrong("inputs", Names(count), "2, since add reads two");
  } else if (count > 1) {
    check.Wrong("inputs", Names(count), "at most 1, since only add reads two");
  }
  for (int i = 0; i < count; ++i) {
    const std::string& name = layer.inputs(i);
    if (name == kInputName || before.contains(name)) continue;
    check.Wrong(absl::StrCat("inputs[", i, "]"), Quote(name),
                "\"input\" or the name of a layer above");
  }
}

void ValidateLayers(const v1::Model& model, FieldChecker check) {
  std::set<std::string> names;
  for (int i = 0; i < model.layers_size(); ++i) {
    const v1::Layer& layer = model.layers(i);
    FieldChecker in_layer = check.In(absl::StrCat("layers[", i, "]"));
    if (layer.name().empty()) {
      in_layer.Missing("name", "a name that no other layer has");
    } else if (!IsLayerName(layer.name())) {
      in_layer.Wrong(
          "name", Quote(layer.name()),
          absl::StrCat("1 to ", kLayerNameBytesMax, " letters, digits, '_', '.' or '-'"));
    } else if (layer.name() == kInputName) {
      in_layer.Wrong("name", Quote(layer.name()), "another name: \"input\" is the image");
    } else if (names.contains(layer.name())) {
      in_layer.Wrong("name", Quote(layer.name()), "a name that no other layer has");
    }
    ValidateLayerInputs(layer, names, in_layer);
    ValidateLayerKind(layer, in_layer);
    names.insert(layer.name());
  }
}

void ValidateLoss(const v1::Model::Loss& loss, FieldChecker check) {
  if (loss.kind_case() == v1::Model::Loss::KIND_NOT_SET) {
    check.Missing("",
                  "one of softmax_cross_entropy, squared, huber, quantile, sigmoid_cross_entropy");
  }
  if (loss.huber().has_delta()) {
    check.Real("huber.delta", loss.huber().delta(), Above(0), Presence::kExplicit);
  }
  if (loss.quantile().has_q()) {
    check.Real("quantile.q", loss.quantile().q(), OpenOpen(0, 1), Presence::kExplicit);
  }
}

}  // namespace

void ValidateModel(const v1::Model& model, FieldChecker check) {
  if (!model.zoo().empty() && model.layers_size() > 0) {
    check.Wrong("", absl::StrCat("both zoo and ", model.layers_size(), " layers"), "one of them");
    return;
  }
  if (model.has_sparse()) {
    if (!model.zoo().empty() || model.layers_size() > 0) {
      check.Wrong("", absl::StrCat("both sparse and ", model.zoo().empty() ? "layers" : "zoo"),
                  "one of them");
    }
    if (model.has_classes()) {
      check.Wrong("classes", absl::StrCat(model.classes()), "nothing: sparse models have none");
    }
    if (model.has_loss()) {
      check.Wrong("loss", "a value", "nothing: sparse models have a loss of their own");
    }
    return ValidateSparseModel(model.sparse(), check.In("sparse"));
  }
  if (model.zoo().empty() && model.layers_size() == 0) {
    check.Missing("",
                  absl::StrCat("layers, sparse, or zoo: one of ", absl::StrJoin(ZooNames(), ", ")));
    return;
  }
  if (model.has_loss()) ValidateLoss(model.loss(), check.In("loss"));
  if (model.has_classes() && LabelsOf(model) != LabelKind::kClasses) {
    check.Wrong("classes", absl::StrCat(model.classes()),
                "nothing: labels that are numbers say how many outputs there are");
  } else if (model.has_classes()) {
    check.IntegerBetween("classes", model.classes(), 2, kClassesMax, Presence::kExplicit);
  }
  if (!model.zoo().empty()) {
    const std::vector<std::string> zoo = ZooNames();
    if (std::find(zoo.begin(), zoo.end(), model.zoo()) == zoo.end()) {
      check.Wrong("zoo", Quote(model.zoo()), absl::StrCat("one of ", absl::StrJoin(zoo, ", ")));
    }
    return;
  }
  if (model.layers_size() > kLayersMax) {
    check.Wrong("layers", absl::StrCat(model.layers_size(), " layers"),
                absl::StrCat("at most ", kLayersMax));
    return;
  }
  ValidateLayers(model, check);
}

}  // namespace capstan
