#include "kernels/cuda/emulation/libraries/cudnn_stand_in.h"

#include "kernels/cuda/emulation/libraries/cudnn_library.h"

namespace capstan::kernels::cuda::emulation {
namespace {

bool IsVirtual(const Record& tensor) { return tensor.Value(CUDNN_ATTR_TENSOR_IS_VIRTUAL, false); }

// The parts of a stand-in: the graph's convolution, and the only tensor that the graph writes.
struct Parts {
  std::shared_ptr<const Record> convolution, result;
};

// Returns null parts if the graph needs no stand-in.
Parts PartsOf(const Record& graph) {
  Parts parts;
  for (const auto& operation : graph.List(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    if (operation->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR) {
      if (parts.convolution != nullptr) return {};
      parts.convolution = operation;
      continue;
    }
    const auto y = operation->One(CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    if (operation->type != CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR || y == nullptr) return {};
    if (IsVirtual(*y)) continue;
    if (parts.result != nullptr) return {};
    parts.result = y;
  }
  return parts;
}

}  // namespace

cudnnBackendDescriptor_t StandIn::Make(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t made = nullptr;
  if (Cudnn().Create(type, &made) != CUDNN_STATUS_SUCCESS) return nullptr;
  made_.push_back(made);
  return made;
}

cudnnBackendDescriptor_t StandIn::Copy(const Record& record, const Record* y) {
  const cudnnBackendDescriptor_t copy = Make(record.type);
  if (copy == nullptr) return nullptr;
  for (const auto& [name, attribute] : record.attributes) {
    if (attribute.type == CUDNN_TYPE_HANDLE) continue;  // The card's properties replace it.
    std::vector<cudnnBackendDescriptor_t> parts;
    for (const auto& part : attribute.records) {
      const bool is_y = y != nullptr && name == CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y;
      parts.push_back(Copy(is_y ? *y : *part));
      if (parts.back() == nullptr) return nullptr;
    }
    const bool has_parts = attribute.type == CUDNN_TYPE_BACKEND_DESCRIPTOR;
    const void* const values = has_parts ? static_cast<const void*>(parts.data())
                                         : static_cast<const void*>(attribute.bytes.data());
    if (Cudnn().Set(copy, name, attribute.type, attribute.count, values) != CUDNN_STATUS_SUCCESS) {
      return nullptr;
    }
  }
  return Cudnn().Finalize(copy) == CUDNN_STATUS_SUCCESS ? copy : nullptr;
}

std::shared_ptr<const StandIn> StandIn::Create(const Record& graph, cudnnBackendHeurMode_t mode,
                                               const Card& card) {
  const Parts parts = PartsOf(graph);
  const cudnnBackendDescriptor_t properties = PropertiesOf(card);
  if (parts.convolution == nullptr || parts.result == nullptr || properties == nullptr) return {};
  const std::shared_ptr<StandIn> stand_in(new StandIn);
  const cudnnBackendDescriptor_t operation = stand_in->Copy(*parts.convolution, parts.result.get());
  const cudnnBackendDescriptor_t plain = stand_in->Make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  const cudnnBackendDescriptor_t heuristic = stand_in->Make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  if (operation == nullptr || plain == nullptr || heuristic == nullptr) return {};
  const auto set = [](cudnnBackendDescriptor_t whole, cudnnBackendAttributeName_t name,
                      cudnnBackendAttributeType_t type, const void* value) {
    return Cudnn().Set(whole, name, type, 1, value) == CUDNN_STATUS_SUCCESS;
  };
  constexpr auto kPart = CUDNN_TYPE_BACKEND_DESCRIPTOR;
  const bool taken = set(plain, CUDNN_ATTR_OPERATIONGRAPH_OPS, kPart, &operation) &&
                     Cudnn().Finalize(plain) == CUDNN_STATUS_SUCCESS &&
                     set(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, kPart, &plain) &&
                     set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, &mode) &&
                     set(heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, kPart, &properties) &&
                     Cudnn().Finalize(heuristic) == CUDNN_STATUS_SUCCESS;
  return taken ? stand_in : nullptr;
}

StandIn::~StandIn() {
  for (auto made = made_.rbegin(); made != made_.rend(); ++made) Cudnn().Destroy(*made);
}

}  // namespace capstan::kernels::cuda::emulation
