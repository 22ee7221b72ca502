// The version of all Capstan programs, for people; peers compare ProtocolVersion instead.
#ifndef CAPSTAN_COMMON_PROCESS_VERSION_H_
#define CAPSTAN_COMMON_PROCESS_VERSION_H_

namespace capstan {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace capstan

#endif  // CAPSTAN_COMMON_PROCESS_VERSION_H_
