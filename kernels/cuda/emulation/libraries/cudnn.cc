// The cuDNN functions that the backend calls. The real library plans, for the emulated card instead
// of a handle's card; this file runs the plans on the host.
//
// It is stricter than the library: a handle must be alive, and memory that a plan writes must not
// overlap with other operands. It also fills the workspace with NaN before and after a run.
// Thread safety: as the library's.
#include <cudnn.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "kernels/cuda/emulation/card.h"
#include "kernels/cuda/emulation/libraries/cudnn_execution.h"
#include "kernels/cuda/emulation/libraries/cudnn_library.h"
#include "kernels/cuda/emulation/libraries/cudnn_program.h"
#include "kernels/cuda/emulation/libraries/cudnn_records.h"
#include "kernels/cuda/emulation/libraries/cudnn_stand_in.h"
#include "kernels/cuda/emulation/runtime.h"

// The library declares this type; its content is the emulation's.
struct cudnnContext {
  const capstan::kernels::cuda::emulation::Card* card = nullptr;
  cudaStream_t stream = nullptr;
};

namespace capstan::kernels::cuda::emulation {
namespace {

// The message of the last call's error for cudnnGetLastErrorString; empty if the error is the
// library's own.
thread_local std::string last_error;

cudnnStatus_t Fail(cudnnStatus_t status, std::string what) {
  last_error = std::move(what);
  return status;
}

// ---------------------------------------------------------------- handles

absl::Mutex& HandlesMutex() {
  static auto& mutex = *new absl::Mutex();
  return mutex;
}

std::set<cudnnHandle_t>& Handles() {
  static auto& handles = *new std::set<cudnnHandle_t>();
  return handles;
}

bool IsAlive(cudnnHandle_t handle) {
  const absl::MutexLock lock(&HandlesMutex());
  return Handles().contains(handle);
}

// ---------------------------------------------------------------- descriptors

Records& AllRecords() {
  static auto& records = *new Records();
  return records;
}

cudnnStatus_t SetProperties(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                            const Card& card) {
  const cudnnBackendDescriptor_t properties = PropertiesOf(card);
  if (properties == nullptr) {
    return Fail(CUDNN_STATUS_NOT_SUPPORTED, absl::StrCat("cuDNN does not know an ", card.name));
  }
  return Cudnn().Set(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &properties);
}

cudnnStatus_t SetHandle(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                        cudnnHandle_t handle) {
  if (!IsAlive(handle)) return Fail(CUDNN_STATUS_BAD_PARAM, "no such handle");
  switch (name) {
    case CUDNN_ATTR_OPERATIONGRAPH_HANDLE:
      return CUDNN_STATUS_SUCCESS;  // The record keeps it: heuristics and engines need it.
    case CUDNN_ATTR_EXECUTION_PLAN_HANDLE:
      return SetProperties(descriptor, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *handle->card);
    default:
      return Fail(CUDNN_STATUS_NOT_SUPPORTED, absl::StrCat("not emulated: a handle at ", name));
  }
}

// Sets the card of a heuristic or an engine, which its graph's handle determines.
cudnnStatus_t SetGraph(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                       const Record& graph) {
  const auto handle = graph.Value<cudnnHandle_t>(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, cudnnHandle_t{});
  if (!IsAlive(handle)) return Fail(CUDNN_STATUS_BAD_PARAM, "the graph has no handle");
  return SetProperties(descriptor,
                       name == CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH
                           ? CUDNN_ATTR_ENGINEHEUR_DEVICEPROP
                           : CUDNN_ATTR_ENGINE_DEVICEPROP,
                       *handle->card);
}

cudnnStatus_t Remember(Record& record, cudnnBackendAttributeName_t name,
                       cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  Attribute attribute;
  attribute.type = type;
  attribute.count = count;
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    const auto* const descriptors = static_cast<const cudnnBackendDescriptor_t*>(values);
    for (int64_t i = 0; i < count; ++i) {
      std::shared_ptr<const Record> part = AllRecords().Find(descriptors[i]);
      if (part == nullptr) return Fail(CUDNN_STATUS_BAD_PARAM, "no such descriptor");
      attribute.records.push_back(std::move(part));
    }
  } else {
    const auto* const bytes = static_cast<const std::byte*>(values);
    attribute.bytes.assign(bytes, bytes + static_cast<size_t>(count) * BytesOf(type));
  }
  record.attributes[name] = std::move(attribute);
  return CUDNN_STATUS_SUCCESS;
}

// ---------------------------------------------------------------- plans

// Returns the graph for which an engine's configuration was made; null if it is not known.
std::shared_ptr<const Record> GraphOf(const Record& config) {
  if (config.graph != nullptr) return config.graph;
  const std::shared_ptr<const Record> engine = config.One(CUDNN_ATTR_ENGINECFG_ENGINE);
  return engine == nullptr ? nullptr : engine->One(CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
}

// Returns how many configurations a finalised heuristic really gives: when asked for the number, it
// reports more.
int64_t CountOffers(cudnnBackendDescriptor_t heuristic) {
  const auto get = [heuristic](int64_t requested, cudnnBackendDescriptor_t* configs) {
    int64_t count = 0;
    const cudnnStatus_t status =
        Cudnn().Get(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                    requested, &count, configs);
    return status == CUDNN_STATUS_SUCCESS ? count : 0;
  };
  std::vector<cudnnBackendDescriptor_t> configs(static_cast<size_t>(get(0, nullptr)));
  for (cudnnBackendDescriptor_t& config : configs) {
    Cudnn().Create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config);
  }
  const int64_t count = get(static_cast<int64_t>(configs.size()), configs.data());
  for (const cudnnBackendDescriptor_t config : configs) Cudnn().Destroy(config);
  return count;
}

// Sets the stand-in of a finalised heuristic if the library offers no plans for its graph.
void FindStandIn(cudnnBackendDescriptor_t heuristic, Record& record) {
  const std::shared_ptr<const Record> graph = record.One(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  if (graph == nullptr || graph->List(CUDNN_ATTR_OPERATIONGRAPH_OPS).size() < 2) return;
  if (CountOffers(heuristic) > 0) return;
  const auto handle =
      graph->Value<cudnnHandle_t>(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, cudnnHandle_t{});
  if (!IsAlive(handle)) return;
  record.stand_in = StandIn::Create(
      *graph, record.Value(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_HEUR_MODE_A), *handle->card);
}

// Reads the notes of the engine of a finalised plan.
cudnnStatus_t NotesOf(cudnnBackendDescriptor_t plan,
                      std::vector<cudnnBackendNumericalNote_t>& notes) {
  std::vector<cudnnBackendDescriptor_t> made;
  const auto part_of = [&made](cudnnBackendDescriptor_t whole, cudnnBackendAttributeName_t name,
                               cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t part = nullptr;
    cudnnStatus_t status = Cudnn().Create(type, &part);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    made.push_back(part);
    int64_t count = 0;
    return Cudnn().Get(whole, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &part);
  };
  cudnnStatus_t status =
      part_of(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  if (status == CUDNN_STATUS_SUCCESS) {
    status = part_of(made[0], CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  }
  if (status == CUDNN_STATUS_SUCCESS) {
    notes.resize(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
    int64_t count = 0;
    status = Cudnn().Get(made[1], CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                         CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes.data());
    notes.resize(static_cast<size_t>(count));
  }
  for (const cudnnBackendDescriptor_t part : made) Cudnn().Destroy(part);
  return status;
}

// Makes the program of a plan that was finalised.
cudnnStatus_t Understand(cudnnBackendDescriptor_t plan, Record& record) {
  const std::shared_ptr<const Record> config = record.One(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  const std::shared_ptr<const Record> graph = config == nullptr ? nullptr : GraphOf(*config);
  if (graph == nullptr) return Fail(CUDNN_STATUS_BAD_PARAM, "a plan of no known graph");
  std::vector<cudnnBackendNumericalNote_t> notes;
  if (const cudnnStatus_t status = NotesOf(plan, notes); status != CUDNN_STATUS_SUCCESS) {
    return status;
  }
  int64_t count = 0;
  int64_t workspace_bytes = 0;
  const cudnnStatus_t status = Cudnn().Get(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                           CUDNN_TYPE_INT64, 1, &count, &workspace_bytes);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  record.program = std::make_shared<const absl::StatusOr<CudnnProgram>>(
      ProgramOf(*graph, notes, workspace_bytes));
  return CUDNN_STATUS_SUCCESS;
}

// ---------------------------------------------------------------- execution

Operands OperandsOf(const Record& pack) {
  Operands operands;
  const auto ids = pack.Values<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = pack.Values<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  for (size_t i = 0; i < std::min(ids.size(), pointers.size()); ++i) {
    operands.pointers[ids[i]] = pointers[i];
  }
  operands.workspace = pack.Value<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, nullptr);
  return operands;
}

cudnnStatus_t Execute(cudnnHandle_t handle, const Record& plan, const Record& pack) {
  if (!plan.finalized || !pack.finalized || plan.program == nullptr) {
    return Fail(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a plan or operands that are not finalised");
  }
  if (!plan.program->ok()) {
    return Fail(CUDNN_STATUS_NOT_SUPPORTED, std::string(plan.program->status().message()));
  }
  Operands operands = OperandsOf(pack);
  cudaGetDevice(&operands.device);  // It is the stream's device: Enqueue refuses any other.
  std::string wrong;
  if (const cudnnStatus_t status = CheckOperands(**plan.program, operands, wrong);
      status != CUDNN_STATUS_SUCCESS) {
    return Fail(status, std::move(wrong));
  }
  const cudaError_t error =
      Enqueue(handle->stream, [program = plan.program, operands = std::move(operands)] {
        return RunOnDevice(**program, operands);
      });
  if (error == cudaSuccess) return CUDNN_STATUS_SUCCESS;
  return Fail(CUDNN_STATUS_EXECUTION_FAILED_CUDART, absl::StrCat("the stream's error ", error));
}

cudnnStatus_t Unusable() { return Fail(CUDNN_STATUS_NOT_INITIALIZED, Cudnn().failure); }

}  // namespace
}  // namespace capstan::kernels::cuda::emulation

// ---------------------------------------------------------------- the library's functions

namespace emulation = capstan::kernels::cuda::emulation;

extern "C" {

size_t CUDNNWINAPI cudnnGetVersion() {
  const emulation::CudnnLibrary& cudnn = emulation::Cudnn();
  return cudnn.GetVersion == nullptr ? 0 : cudnn.GetVersion();
}

const char* CUDNNWINAPI cudnnGetErrorString(cudnnStatus_t status) {
  const emulation::CudnnLibrary& cudnn = emulation::Cudnn();
  return cudnn.failure.empty() ? cudnn.GetErrorString(status) : "CUDNN_STATUS_NOT_INITIALIZED";
}

void CUDNNWINAPI cudnnGetLastErrorString(char* message, size_t max_size) {
  if (max_size == 0) return;
  if (emulation::last_error.empty() && emulation::Cudnn().failure.empty()) {
    emulation::Cudnn().GetLastErrorString(message, max_size);
    return;
  }
  std::snprintf(message, max_size, "%s", emulation::last_error.c_str());
  emulation::last_error.clear();
}

cudnnStatus_t CUDNNWINAPI cudnnCreate(cudnnHandle_t* handle) {
  emulation::last_error.clear();
  if (!emulation::Cudnn().failure.empty()) return emulation::Unusable();
  *handle = new cudnnContext{.card = &emulation::EmulatedCard()};
  const absl::MutexLock lock(&emulation::HandlesMutex());
  emulation::Handles().insert(*handle);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CUDNNWINAPI cudnnDestroy(cudnnHandle_t handle) {
  emulation::last_error.clear();
  const absl::MutexLock lock(&emulation::HandlesMutex());
  if (emulation::Handles().erase(handle) == 0) {
    return emulation::Fail(CUDNN_STATUS_BAD_PARAM, "no such handle");
  }
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CUDNNWINAPI cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  emulation::last_error.clear();
  if (!emulation::IsAlive(handle)) {
    return emulation::Fail(CUDNN_STATUS_BAD_PARAM, "no such handle");
  }
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CUDNNWINAPI cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                                       cudnnBackendDescriptor_t* descriptor) {
  emulation::last_error.clear();
  if (!emulation::Cudnn().failure.empty()) return emulation::Unusable();
  const cudnnStatus_t status = emulation::Cudnn().Create(type, descriptor);
  if (status == CUDNN_STATUS_SUCCESS) emulation::AllRecords().Add(*descriptor, type);
  return status;
}

cudnnStatus_t CUDNNWINAPI cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  // The record may own the descriptor's parts, so it lives until Destroy returns.
  const std::shared_ptr<emulation::Record> record = emulation::AllRecords().Find(descriptor);
  emulation::AllRecords().Remove(descriptor);
  return emulation::Cudnn().Destroy(descriptor);
}

cudnnStatus_t CUDNNWINAPI cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                                   cudnnBackendAttributeName_t name,
                                                   cudnnBackendAttributeType_t type, int64_t count,
                                                   const void* values) {
  emulation::last_error.clear();
  const std::shared_ptr<emulation::Record> record = emulation::AllRecords().Find(descriptor);
  if (record == nullptr) return emulation::Fail(CUDNN_STATUS_BAD_PARAM, "no such descriptor");
  if (record->finalized) {
    return emulation::Fail(CUDNN_STATUS_BAD_PARAM, "set after it was finalised");
  }
  const cudnnStatus_t status =
      type == CUDNN_TYPE_HANDLE
          ? emulation::SetHandle(descriptor, name, *static_cast<const cudnnHandle_t*>(values))
          : emulation::Cudnn().Set(descriptor, name, type, count, values);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  const cudnnStatus_t remembered = emulation::Remember(*record, name, type, count, values);
  if (remembered != CUDNN_STATUS_SUCCESS) return remembered;
  if (name == CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH || name == CUDNN_ATTR_ENGINE_OPERATION_GRAPH) {
    return emulation::SetGraph(descriptor, name, *record->One(name));
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CUDNNWINAPI cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor,
                                                   cudnnBackendAttributeName_t name,
                                                   cudnnBackendAttributeType_t type,
                                                   int64_t requested, int64_t* count,
                                                   void* values) {
  emulation::last_error.clear();
  std::shared_ptr<emulation::Record> heuristic;
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) heuristic = emulation::AllRecords().Find(descriptor);
  const cudnnBackendDescriptor_t asked = heuristic != nullptr && heuristic->stand_in != nullptr
                                             ? heuristic->stand_in->heuristic()
                                             : descriptor;
  const cudnnStatus_t status = emulation::Cudnn().Get(asked, name, type, requested, count, values);
  if (status != CUDNN_STATUS_SUCCESS || heuristic == nullptr || values == nullptr) return status;
  const auto* const configs = static_cast<const cudnnBackendDescriptor_t*>(values);
  for (int64_t i = 0; i < std::min(requested, *count); ++i) {
    const std::shared_ptr<emulation::Record> config = emulation::AllRecords().Find(configs[i]);
    if (config == nullptr) continue;
    config->graph = heuristic->One(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    config->stand_in = heuristic->stand_in;
  }
  return status;
}

cudnnStatus_t CUDNNWINAPI cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  emulation::last_error.clear();
  const std::shared_ptr<emulation::Record> record = emulation::AllRecords().Find(descriptor);
  if (record == nullptr) return emulation::Fail(CUDNN_STATUS_BAD_PARAM, "no such descriptor");
  const cudnnStatus_t status = emulation::Cudnn().Finalize(descriptor);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  record->finalized = true;
  if (record->type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) {
    emulation::FindStandIn(descriptor, *record);
  }
  return record->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR
             ? emulation::Understand(descriptor, *record)
             : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CUDNNWINAPI cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                              cudnnBackendDescriptor_t pack) {
  emulation::last_error.clear();
  if (!emulation::IsAlive(handle)) {
    return emulation::Fail(CUDNN_STATUS_BAD_PARAM, "no such handle");
  }
  const std::shared_ptr<emulation::Record> what = emulation::AllRecords().Find(plan);
  const std::shared_ptr<emulation::Record> operands = emulation::AllRecords().Find(pack);
  if (what == nullptr || operands == nullptr) {
    return emulation::Fail(CUDNN_STATUS_BAD_PARAM, "no such descriptor");
  }
  return emulation::Execute(handle, *what, *operands);
}

}  // extern "C"
