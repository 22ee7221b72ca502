// Record: the attributes that were set in one of cuDNN's descriptors. The library does not report
// them once a descriptor is finalised, and the host must know a plan's whole graph to run it.
//
// A record shares ownership of the records to which it refers, as in the library: a graph lives on
// when its descriptors are destroyed.
// Thread safety: Records is thread-safe; a record does not change once it is finalised.
#ifndef CAPSTAN_KERNELS_CUDA_EMULATION_LIBRARIES_CUDNN_RECORDS_H_
#define CAPSTAN_KERNELS_CUDA_EMULATION_LIBRARIES_CUDNN_RECORDS_H_

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
  std::vector<std::byte> bytes;                        // `count` values, unless of descriptors.
  std::vector<std::shared_ptr<const Record>> records;  // The values of descriptors.
};

struct Record {
  cudnnBackendDescriptorType_t type{};
  bool finalized = false;
  std::map<cudnnBackendAttributeName_t, Attribute> attributes;

  // The heuristic's graph, in an engine's configuration that a heuristic has made.
  std::shared_ptr<const Record> graph;
  // The stand-in that is asked in place of a heuristic, in the finalised heuristic and in
  // configurations that it has made. Null if the heuristic itself is asked.
  std::shared_ptr<const StandIn> stand_in;
  // The program of a finalised plan, or why it cannot be emulated.
  std::shared_ptr<const absl::StatusOr<CudnnProgram>> program;

  // Returns the values of an attribute; empty if it was not set, or if its values do not have the
  // size of T.
  template <typename T>
  std::vector<T> Values(cudnnBackendAttributeName_t name) const;
  // Returns the first value of an attribute; `otherwise` if there is none.
  template <typename T>
  T Value(cudnnBackendAttributeName_t name, T otherwise) const;

  // List returns the descriptors of an attribute, One the first of them or null.
  std::vector<std::shared_ptr<const Record>> List(cudnnBackendAttributeName_t name) const;
  std::shared_ptr<const Record> One(cudnnBackendAttributeName_t name) const;
};

// Maps the library's descriptors to their records.
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

// The bytes of one value of an attribute type; 0 for types that are not recorded.
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

#endif  // CAPSTAN_KERNELS_CUDA_EMULATION_LIBRARIES_CUDNN_RECORDS_H_
