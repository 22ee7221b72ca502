#include "server/engine/install_memory.h"

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace capstan::server {

absl::StatusOr<InstallMemory::Share> InstallMemory::Take(int64_t bytes) {
  absl::MutexLock lock(&mutex_);
  if (bytes > kBytesMax - held_) {
    return absl::ResourceExhaustedError(absl::StrCat("an install asks for ", bytes,
                                                     " bytes, others hold ", held_,
                                                     ": expected at most ", kBytesMax, " in all"));
  }
  CAPSTAN_RETURN_IF_ERROR(account_(held_ + bytes));
  held_ += bytes;
  return Share(new int64_t(bytes), [memory = shared_from_this()](const int64_t* taken) {
    memory->GiveBack(*taken);
    delete taken;
  });
}

void InstallMemory::GiveBack(int64_t bytes) {
  absl::MutexLock lock(&mutex_);
  held_ -= bytes;
  account_(held_).IgnoreError();  // Less is never refused.
}

int64_t InstallMemory::held() const {
  absl::MutexLock lock(&mutex_);
  return held_;
}

}  // namespace capstan::server
