// WakeUp: wakes a thread that polls descriptors.
//
// Thread safety: thread-safe.
#ifndef CAPSTAN_COMMON_NET_SOCKET_WAKE_UP_H_
#define CAPSTAN_COMMON_NET_SOCKET_WAKE_UP_H_

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "common/storage/files/descriptor.h"

namespace capstan {

class WakeUp {
 public:
  WakeUp() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  // Makes the descriptor readable until the next Clear.
  void Wake() {
    if (woken_.exchange(true)) return;
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(event_.get(), &one, sizeof(one));
  }
  // Call it before you look for what the wakers have done. `readable`: poll has reported the
  // descriptor. True: there was a Wake since the last Clear.
  bool Clear(bool readable) {
    // If a Clear overtakes a Wake, the descriptor becomes readable while `woken_` is false.
    if (!readable && !woken_.load()) return false;
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = read(event_.get(), &count, sizeof(count));
    // A Wake may come in between. The caller sees what was done before it.
    return woken_.exchange(false);
  }
  bool woken() const { return woken_.load(); }
  int descriptor() const { return event_.get(); }

 private:
  const Descriptor event_;
  std::atomic<bool> woken_ = false;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_SOCKET_WAKE_UP_H_
