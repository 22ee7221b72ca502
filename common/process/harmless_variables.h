// IsHarmlessVariable: which variables of a daemon's environment its children may inherit.
//
// Whoever submits a job can read the environment of its tasks, and the daemon's may hold secrets of
// the machine: credentials of a cloud, tokens of a service manager, proxies with passwords. So
// children get what is on a list, and nothing else. Thread safety: a pure function.
#ifndef CAPSTAN_COMMON_PROCESS_HARMLESS_VARIABLES_H_
#define CAPSTAN_COMMON_PROCESS_HARMLESS_VARIABLES_H_

#include "absl/strings/string_view.h"

namespace capstan {

// Whether a child may inherit the variable `name`: where programs and libraries are, the locale and
// time zone, settings of GPUs, of libraries for arithmetic, of the allocator, of sanitizers, and
// CAPSTAN_*. A variable that is called a key, token, secret, password or credential never passes,
// nor do the ciphers of this process's gRPC.
bool IsHarmlessVariable(absl::string_view name);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_PROCESS_HARMLESS_VARIABLES_H_
