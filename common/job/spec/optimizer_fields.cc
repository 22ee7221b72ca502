#include "common/job/spec/optimizer_fields.h"

#include "absl/strings/str_join.h"

namespace capstan {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

const FieldDescriptor* KindOf(const v1::Optimizer& optimizer) {
  return optimizer.GetDescriptor()->FindFieldByNumber(optimizer.kind_case());
}

const Message& ChosenMessage(const v1::Optimizer& optimizer) {
  return optimizer.GetReflection()->GetMessage(optimizer, KindOf(optimizer));
}

const FieldDescriptor* FieldOf(const Message& message, const OptimizerField& field) {
  return message.GetDescriptor()->FindFieldByName(std::string(field.name));
}

}  // namespace

absl::string_view OptimizerName(const v1::Optimizer& optimizer) {
  const FieldDescriptor* const kind = KindOf(optimizer);
  return kind == nullptr ? absl::string_view() : absl::string_view(kind->name());
}

std::string OptimizerNames() {
  const google::protobuf::OneofDescriptor& kinds = *v1::Optimizer::descriptor()->oneof_decl(0);
  std::vector<std::string> names;
  for (int i = 0; i < kinds.field_count(); ++i) names.push_back(kinds.field(i)->name());
  return absl::StrJoin(names, ", ");
}

std::vector<OptimizerField> OptimizerFields(absl::string_view name) {
  if (name == "momentum") return {{"momentum", ClosedOpen(0, 1), 0.9f}};
  if (name == "nesterov") return {{"momentum", OpenOpen(0, 1), 0.9f}};
  if (name == "adagrad") {
    return {{"epsilon", Above(0), 1e-10f}, {"initial_accumulator", AtLeast(0), 0.0f}};
  }
  if (name == "rmsprop") {
    return {{"alpha", ClosedOpen(0, 1), 0.99f},
            {"epsilon", Above(0), 1e-8f},
            {"momentum", ClosedOpen(0, 1), 0.0f}};
  }
  if (name == "adam" || name == "adamw" || name == "amsgrad") {
    return {{"beta1", ClosedOpen(0, 1), 0.9f},
            {"beta2", ClosedOpen(0, 1), 0.999f},
            {"epsilon", Above(0), 1e-8f}};
  }
  if (name == "ftrl") {
    return {{"beta", AtLeast(0), 1.0f}, {"l1", AtLeast(0), 0.0f}, {"l2", AtLeast(0), 0.0f}};
  }
  if (name == "lion") {
    return {{"beta1", ClosedOpen(0, 1), 0.9f}, {"beta2", ClosedOpen(0, 1), 0.99f}};
  }
  if (name == "lars") {
    return {{"momentum", ClosedOpen(0, 1), 0.9f}, {"trust_coefficient", Above(0), 0.001f}};
  }
  if (name == "lamb") {
    return {{"beta1", ClosedOpen(0, 1), 0.9f},
            {"beta2", ClosedOpen(0, 1), 0.999f},
            {"epsilon", Above(0), 1e-6f}};
  }
  if (name == "adadelta") return {{"rho", ClosedOpen(0, 1), 0.9f}, {"epsilon", Above(0), 1e-6f}};
  return {};  // sgd has none, and a plugin's rule has a list.
}

bool NeedsWholeTensors(absl::string_view name) { return name == "lars" || name == "lamb"; }

bool HasOptimizerNumber(const v1::Optimizer& optimizer, const OptimizerField& field) {
  const Message& message = ChosenMessage(optimizer);
  return message.GetReflection()->HasField(message, FieldOf(message, field));
}

float OptimizerNumber(const v1::Optimizer& optimizer, const OptimizerField& field) {
  if (!HasOptimizerNumber(optimizer, field)) return field.value;
  const Message& message = ChosenMessage(optimizer);
  return message.GetReflection()->GetFloat(message, FieldOf(message, field));
}

}  // namespace capstan
