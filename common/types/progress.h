// Progress: how far a call that takes long has come.
#ifndef CAPSTAN_COMMON_TYPES_PROGRESS_H_
#define CAPSTAN_COMMON_TYPES_PROGRESS_H_

#include <cstdint>
#include <functional>
#include <string>

namespace capstan {

// Told by such a call, on its caller's thread, as it goes on: `more` (> 0) of `what` ("bytes
// written") are done since it was told last. Null: nobody listens.
using Progress = std::function<void(const std::string& what, int64_t more)>;

}  // namespace capstan

#endif  // CAPSTAN_COMMON_TYPES_PROGRESS_H_
