// UnalignedFloat: a float at any address. Loads compile to the same instructions.
//
// A pointer to float converts to one to UnalignedFloat. As a template's argument (std::equal) it
// is a plain float again, which must be aligned. Thread safety: a value.
#ifndef CAPSTAN_COMMON_TYPES_UNALIGNED_FLOAT_H_
#define CAPSTAN_COMMON_TYPES_UNALIGNED_FLOAT_H_

namespace capstan {

typedef float UnalignedFloat __attribute__((aligned(1), may_alias));

}  // namespace capstan

#endif  // CAPSTAN_COMMON_TYPES_UNALIGNED_FLOAT_H_
