#include "kernels/cuda/emulation/libraries/cudnn_execution.h"

#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/emulation/counts.h"
#include "kernels/cuda/emulation/runtime.h"

namespace capstan::kernels::cuda::emulation {
namespace {

// A part of memory that a plan touches.
struct Extent {
  std::string name;
  const char* begin = nullptr;
  int64_t bytes = 0;
  bool is_written = false;
};

bool Overlap(const Extent& a, const Extent& b) {
  return a.begin < b.begin + b.bytes && b.begin < a.begin + a.bytes;
}

// Returns all memory that the plan touches, each tensor once. REQUIRES: `operands` has all tensors.
std::vector<Extent> ExtentsOf(const CudnnProgram& program, const Operands& operands) {
  std::map<int64_t, Extent> tensors;
  for (const std::vector<Tensor>* const list : {&program.read, &program.written}) {
    for (const Tensor& tensor : *list) {
      tensors[tensor.id] = {absl::StrCat("tensor ", tensor.id),
                            static_cast<const char*>(operands.pointers.at(tensor.id)),
                            tensor.Bytes(), /*is_written=*/list == &program.written};
    }
  }
  std::vector<Extent> extents;
  for (const auto& [id, extent] : tensors) extents.push_back(extent);
  if (program.workspace_bytes > 0) {
    extents.push_back({"the workspace", static_cast<const char*>(operands.workspace),
                       program.workspace_bytes, /*is_written=*/true});
  }
  return extents;
}

cudnnStatus_t CheckTensor(const Tensor& tensor, const Operands& operands, std::string& wrong) {
  const auto found = operands.pointers.find(tensor.id);
  if (found == operands.pointers.end() || found->second == nullptr) {
    wrong = absl::StrCat("no tensor ", tensor.id);
    return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  }
  const auto address = reinterpret_cast<uintptr_t>(found->second);
  if (address % static_cast<uintptr_t>(tensor.alignment) != 0) {
    wrong = absl::StrCat("tensor ", tensor.id, " is at no multiple of ", tensor.alignment);
    return CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER;
  }
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

cudnnStatus_t CheckOperands(const CudnnProgram& program, const Operands& operands,
                            std::string& wrong) {
  for (const std::vector<Tensor>* const list : {&program.read, &program.written}) {
    for (const Tensor& tensor : *list) {
      const cudnnStatus_t status = CheckTensor(tensor, operands, wrong);
      if (status != CUDNN_STATUS_SUCCESS) return status;
    }
  }
  if (program.workspace_bytes > 0 && operands.workspace == nullptr) {
    wrong = "no workspace";
    return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  }
  const std::vector<Extent> extents = ExtentsOf(program, operands);
  for (size_t i = 0; i < extents.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (!extents[i].is_written && !extents[j].is_written) continue;
      if (!Overlap(extents[i], extents[j])) continue;
      wrong = absl::StrCat(extents[j].name, " overlaps with ", extents[i].name);
      return CUDNN_STATUS_BAD_PARAM;
    }
  }
  return CUDNN_STATUS_SUCCESS;
}

cudaError_t RunOnDevice(const CudnnProgram& program, const Operands& operands) {
  for (const Extent& extent : ExtentsOf(program, operands)) {
    if (IsDeviceMemory(operands.device, extent.begin, static_cast<size_t>(extent.bytes))) continue;
    // A stream's error has no message, so stderr gets it.
    std::fprintf(stderr, "emulated cuDNN: %s, %lld bytes at %p, is not in the card's memory\n",
                 extent.name.c_str(), static_cast<long long>(extent.bytes),
                 static_cast<const void*>(extent.begin));
    return cudaErrorIllegalAddress;
  }
  uint64_t bytes = 0;
  for (const std::vector<Tensor>* const list : {&program.read, &program.written}) {
    for (const Tensor& tensor : *list) bytes += static_cast<uint64_t>(tensor.Bytes());
  }
  if (CountKernel(bytes)) return cudaSuccess;
  Run(program, operands.pointers, operands.workspace);
  return cudaSuccess;
}

}  // namespace capstan::kernels::cuda::emulation
