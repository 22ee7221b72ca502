// RandomHex: makes a random name, which nobody else has.
//
// Thread safety: thread-safe.
#ifndef CAPSTAN_COMMON_PROCESS_RANDOM_HEX_H_
#define CAPSTAN_COMMON_PROCESS_RANDOM_HEX_H_

#include <string>

namespace capstan {

// 16 hexadecimal digits from the system's random numbers.
std::string RandomHex();

}  // namespace capstan

#endif  // CAPSTAN_COMMON_PROCESS_RANDOM_HEX_H_
