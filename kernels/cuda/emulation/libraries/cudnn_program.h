// CudnnProgram: a cuDNN plan in the form that the host runs. It first reads all values from memory,
// then runs the operations of the graph one after the other, and writes the results last.
//
// To add an operation, write a function that makes its Step from its record, and add a case to
// StepOf. Thread safety: values and pure functions.
#ifndef CAPSTAN_KERNELS_CUDA_EMULATION_LIBRARIES_CUDNN_PROGRAM_H_
#define CAPSTAN_KERNELS_CUDA_EMULATION_LIBRARIES_CUDNN_PROGRAM_H_

#include <cudnn.h>

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cuda/emulation/libraries/cudnn_records.h"
#include "kernels/cuda/emulation/libraries/tensor_values.h"

namespace capstan::kernels::cuda::emulation {

// The values of tensors, dense [n, h, w, c], by tensor id.
using Values = std::map<int64_t, std::vector<float>>;

// One operation. Run() rounds its outputs to their types afterwards.
struct Step {
  std::vector<Tensor> inputs, outputs;
  std::function<void(Values&)> run;
};

struct CudnnProgram {
  std::vector<Step> steps;
  std::vector<Tensor> read, written;  // The tensors in memory; a tensor may be in both lists.
  int64_t workspace_bytes = 0;
};

// Makes the program of a finalised graph. `notes` are those of the plan's engine: with tensor
// cores, products of fp32 tensors are computed as TF32.
// Errors: kUnimplemented  an operation, type or shape is not emulated; or the backend must not run
//                         the plan: its bits may change from run to run, or it converts inputs to
//                         fp16.
absl::StatusOr<CudnnProgram> ProgramOf(const Record& graph,
                                       absl::Span<const cudnnBackendNumericalNote_t> notes,
                                       int64_t workspace_bytes);

// Runs the program. `pointers` has the address of every tensor of `read` and `written`, by id; all
// memory is the host's. Fills the workspace with NaN before and after.
void Run(const CudnnProgram& program, const std::map<int64_t, void*>& pointers, void* workspace);

}  // namespace capstan::kernels::cuda::emulation

#endif  // CAPSTAN_KERNELS_CUDA_EMULATION_LIBRARIES_CUDNN_PROGRAM_H_
