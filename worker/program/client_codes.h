// The code that the files of the C interface share: the task, and how they report wrong arguments.
// Thread safety: pure functions.
#ifndef CAPSTAN_WORKER_PROGRAM_CLIENT_CODES_H_
#define CAPSTAN_WORKER_PROGRAM_CLIENT_CODES_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "worker/program/capstan_client.h"
#include "worker/program/program_task.h"

struct capstan_task {
  std::unique_ptr<capstan::worker::ProgramTask> task;
};

namespace capstan::worker {

// Writes the message to the caller's `error`, which may be null.
inline void Tell(absl::string_view message, char* error) {
  if (error == nullptr) return;
  const size_t length = std::min<size_t>(message.size(), CAPSTAN_ERROR_BYTES - 1);
  std::memcpy(error, message.data(), length);
  error[length] = '\0';
}

// Says what is wrong with the caller's arguments.
inline capstan_code Wrong(absl::string_view message, char* error) {
  Tell(message, error);
  return CAPSTAN_WRONG;
}

// Checks the seconds that a caller would wait.
inline capstan_code CheckSeconds(double seconds, char* error) {
  if (seconds >= 0) return CAPSTAN_OK;
  return Wrong(absl::StrCat("seconds is ", seconds, ", expected at least 0"), error);
}

// Checks the arrays of a push, a pull or a read.
inline capstan_code CheckArrays(const int64_t* keys, int64_t key_count, const float* values,
                                int64_t count, char* error) {
  const bool whole = key_count >= 0 && count >= 0 && (keys != nullptr || key_count == 0) &&
                     (values != nullptr || count == 0);
  if (whole) return CAPSTAN_OK;
  return Wrong(absl::StrCat("got ", key_count, " keys and ", count,
                            " values, expected at least 0 of each, and NULL for none alone"),
               error);
}

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_PROGRAM_CLIENT_CODES_H_
