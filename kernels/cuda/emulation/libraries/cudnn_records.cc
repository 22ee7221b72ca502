#include "kernels/cuda/emulation/libraries/cudnn_records.h"

namespace capstan::kernels::cuda::emulation {

std::vector<std::shared_ptr<const Record>> Record::List(cudnnBackendAttributeName_t name) const {
  const auto found = attributes.find(name);
  if (found == attributes.end()) return {};
  return found->second.records;
}

std::shared_ptr<const Record> Record::One(cudnnBackendAttributeName_t name) const {
  const auto found = attributes.find(name);
  if (found == attributes.end() || found->second.records.empty()) return nullptr;
  return found->second.records.front();
}

std::shared_ptr<Record> Records::Add(cudnnBackendDescriptor_t descriptor,
                                     cudnnBackendDescriptorType_t type) {
  auto record = std::make_shared<Record>();
  record->type = type;
  const absl::MutexLock lock(&mutex_);
  records_[descriptor] = record;
  return record;
}

std::shared_ptr<Record> Records::Find(cudnnBackendDescriptor_t descriptor) const {
  const absl::MutexLock lock(&mutex_);
  const auto found = records_.find(descriptor);
  return found == records_.end() ? nullptr : found->second;
}

void Records::Remove(cudnnBackendDescriptor_t descriptor) {
  const absl::MutexLock lock(&mutex_);
  records_.erase(descriptor);
}

size_t BytesOf(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN:
      return sizeof(bool);
    case CUDNN_TYPE_INT32:
    case CUDNN_TYPE_FLOAT:
      return 4;
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
      return 8;
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
      return sizeof(void*);
    case CUDNN_TYPE_CHAR:
      return 1;
    case CUDNN_TYPE_DATA_TYPE:
    case CUDNN_TYPE_CONVOLUTION_MODE:
    case CUDNN_TYPE_HEUR_MODE:
    case CUDNN_TYPE_KNOB_TYPE:
    case CUDNN_TYPE_NAN_PROPOGATION:
    case CUDNN_TYPE_POINTWISE_MODE:
    case CUDNN_TYPE_GENSTATS_MODE:
    case CUDNN_TYPE_REDUCTION_OPERATOR_TYPE:
      return sizeof(int);
    default:
      return 0;
  }
}

}  // namespace capstan::kernels::cuda::emulation
