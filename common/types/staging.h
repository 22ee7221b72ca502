// What the folders of staged models are called (common/tensor/staged_model.h).
#ifndef CAPSTAN_COMMON_TYPES_STAGING_H_
#define CAPSTAN_COMMON_TYPES_STAGING_H_

namespace capstan {

// "<this><rank>-<incarnation>", of the task that writes there.
inline constexpr char kStagedModelPrefix[] = ".export-";

}  // namespace capstan

#endif  // CAPSTAN_COMMON_TYPES_STAGING_H_
