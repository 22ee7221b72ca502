// A cuDNN plan as the host runs it: the operations of its graph one after the other, on values that
// are read from memory first and written there last.
//
// To add an operation: a function that makes its Step from its record, and a case in StepOf.
// Thread safety: values and pure functions.
#ifndef CAPSTAN_KERNELS_CUDA_EMULATION_CUDNN_PROGRAM_H_
#define CAPSTAN_KERNELS_CUDA_EMULATION_CUDNN_PROGRAM_H_

#include <cudnn.h>

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cuda/emulation/cudnn_records.h"
#include "kernels/cuda/emulation/tensor_values.h"

namespace capstan::kernels::cuda::emulation {

// What tensors hold, by their ids: [n, h, w, c], dense.
using Values = std::map<int64_t, std::vector<float>>;

// One operation. What it leaves in its outputs is rounded to their types afterwards.
struct Step {
  std::vector<Tensor> inputs, outputs;
  std::function<void(Values&)> run;
};

struct CudnnProgram {
  std::vector<Step> steps;
  std::vector<Tensor> read, written;  // In memory; a tensor may be in both.
  int64_t workspace_bytes = 0;
};

// The program of a finalised graph. `notes` are those of the plan's engine: with tensor cores,
// products of fp32 tensors are those of TF32.
// Errors: kUnimplemented  an operation, type or shape that is not emulated, or a plan whose bits
// may change from run to run: nobody is to run one.
absl::StatusOr<CudnnProgram> ProgramOf(const Record& graph,
                                       absl::Span<const cudnnBackendNumericalNote_t> notes,
                                       int64_t workspace_bytes);

// Runs it. `pointers` has every tensor of `read` and `written`, by id; all memory is the host's.
// The workspace is left full of NaN, before and after.
void Run(const CudnnProgram& program, const std::map<int64_t, void*>& pointers, void* workspace);

}  // namespace capstan::kernels::cuda::emulation

#endif  // CAPSTAN_KERNELS_CUDA_EMULATION_CUDNN_PROGRAM_H_
