// Progress: how far a call that takes long has come.
#ifndef CAPSTAN_COMMON_TYPES_PROGRESS_H_
#define CAPSTAN_COMMON_TYPES_PROGRESS_H_

#include <cstdint>
#include <functional>
#include <string>

namespace capstan {

// Called by such a call, on its caller's thread: `more` (> 0) of `what` ("bytes written") are done
// since the last time. Null: nobody listens.
using Progress = std::function<void(const std::string& what, int64_t more)>;

}  // namespace capstan

#endif  // CAPSTAN_COMMON_TYPES_PROGRESS_H_
