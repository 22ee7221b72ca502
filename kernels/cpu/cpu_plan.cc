#include "kernels/cpu/cpu_plan.h"

#include <array>
#include <cstddef>

namespace capstan::kernels {
namespace {

// Made when the first file enters its ops: constants of several files are made in no fixed order.
std::array<PlanMaker, kOpKindCount>& Makers() {
  static std::array<PlanMaker, kOpKindCount> makers = {};
  return makers;
}

}  // namespace

CpuOps::CpuOps(std::initializer_list<OpKind> kinds, PlanMaker make) {
  for (const OpKind kind : kinds) Makers()[static_cast<size_t>(kind)] = make;
}

PlanMaker CpuOps::MakerOf(OpKind kind) { return Makers()[static_cast<size_t>(kind)]; }

}  // namespace capstan::kernels
