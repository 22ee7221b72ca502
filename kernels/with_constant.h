// WithConstant: calls a template with an enumerator that is known only at run time.
//
// Plain C++ for g++ and nvcc. Thread safety: a pure function.
#ifndef CAPSTAN_KERNELS_WITH_CONSTANT_H_
#define CAPSTAN_KERNELS_WITH_CONSTANT_H_

#include <cstddef>
#include <type_traits>
#include <utility>

namespace capstan::kernels {

template <typename Enum, typename Call, size_t... kIndex>
void WithConstantAmong(std::index_sequence<kIndex...>, Enum value, const Call& call) {
  ((value == static_cast<Enum>(kIndex)
        ? call(std::integral_constant<Enum, static_cast<Enum>(kIndex)>())
        : void()),
   ...);
}
// Calls call(std::integral_constant<Enum, value>()), which returns nothing, for the first kCount
// enumerators. Does nothing for others.
template <size_t kCount, typename Enum, typename Call>
void WithConstant(Enum value, const Call& call) {
  WithConstantAmong(std::make_index_sequence<kCount>(), value, call);
}

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_WITH_CONSTANT_H_
