// What was set in cuDNN's descriptors: the library does not tell it once they are finalised, and
// who runs a plan on the host has to know all of its graph.
//
// Records own those that they refer to, as the library does: a graph lives on when its descriptors
// are destroyed.
// Thread safety: Records is thread-safe; a record is not changed once it is finalised.
#ifndef CAPSTAN_KERNELS_CUDA_EMULATION_CUDNN_RECORDS_H_
#define CAPSTAN_KERNELS_CUDA_EMULATION_CUDNN_RECORDS_H_

#include <cudnn.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace capstan::kernels::cuda::emulation {

struct CudnnProgram;  // cudnn_program.h
class StandIn;        // cudnn_stand_in.h
struct Record;

struct Attribute {
  cudnnBackendAttributeType_t type{};
  int64_t count = 0;
  std::vector<std::byte> bytes;                        // `count` values; none of descriptors.
  std::vector<std::shared_ptr<const Record>> records;  // Of CUDNN_TYPE_BACKEND_DESCRIPTOR.
};

struct Record {
  cudnnBackendDescriptorType_t type{};
  bool finalized = false;
  std::map<cudnnBackendAttributeName_t, Attribute> attributes;

  // Of an engine's configuration that a heuristic has made: what it is for.
  std::shared_ptr<const Record> graph;
  // Of a finalised heuristic, and of configurations that it has made: what the library is asked in
  // its place; null where it answers itself.
  std::shared_ptr<const StandIn> stand_in;
  // Of a finalised plan: what it does, or why that cannot be done here.
  std::shared_ptr<const absl::StatusOr<CudnnProgram>> program;

  // The values of an attribute; none if it was not set. T has the size of the attribute's values.
  template <typename T>
  std::vector<T> Values(cudnnBackendAttributeName_t name) const;
  // The first one.
  template <typename T>
  T Value(cudnnBackendAttributeName_t name, T otherwise) const;

  // The descriptors of an attribute; of the second, the first one or null.
  std::vector<std::shared_ptr<const Record>> List(cudnnBackendAttributeName_t name) const;
  std::shared_ptr<const Record> One(cudnnBackendAttributeName_t name) const;
};

// By the library's descriptors.
class Records {
 public:
  std::shared_ptr<Record> Add(cudnnBackendDescriptor_t descriptor,
                              cudnnBackendDescriptorType_t type);
  // Null if there is none.
  std::shared_ptr<Record> Find(cudnnBackendDescriptor_t descriptor) const;
  void Remove(cudnnBackendDescriptor_t descriptor);

 private:
  mutable absl::Mutex mutex_;
  std::map<cudnnBackendDescriptor_t, std::shared_ptr<Record>> records_ ABSL_GUARDED_BY(mutex_);
};

// Bytes of one value of a type of attributes; 0 for those that are not recorded.
size_t BytesOf(cudnnBackendAttributeType_t type);

// ---------------------------------------------------------------- implementation

template <typename T>
std::vector<T> Record::Values(cudnnBackendAttributeName_t name) const {
  const auto found = attributes.find(name);
  if (found == attributes.end() || BytesOf(found->second.type) != sizeof(T)) return {};
  std::vector<T> values(static_cast<size_t>(found->second.count));
  if (values.empty()) return values;
  std::memcpy(values.data(), found->second.bytes.data(), values.size() * sizeof(T));
  return values;
}

template <typename T>
T Record::Value(cudnnBackendAttributeName_t name, T otherwise) const {
  const auto found = attributes.find(name);
  if (found == attributes.end() || BytesOf(found->second.type) != sizeof(T)) return otherwise;
  if (found->second.count == 0) return otherwise;
  T value;
  std::memcpy(&value, found->second.bytes.data(), sizeof(T));
  return value;
}

}  // namespace capstan::kernels::cuda::emulation

#endif  // CAPSTAN_KERNELS_CUDA_EMULATION_CUDNN_RECORDS_H_
