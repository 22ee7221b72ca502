// StartThread: starts a thread, or says why the machine has none to give. A limit on processes is
// no reason to end a daemon that could continue with the threads that it has.
//
// Thread safety: a function without state.
#ifndef CAPSTAN_COMMON_NET_SOCKET_START_THREAD_H_
#define CAPSTAN_COMMON_NET_SOCKET_START_THREAD_H_

#include <functional>
#include <thread>

#include "absl/status/statusor.h"

namespace capstan {

// Errors: kUnavailable  the system refuses another thread; `body` is destroyed and does not run.
absl::StatusOr<std::thread> StartThread(std::function<void()> body);

// The type of StartThread. Classes take one as an option, so that a test can refuse threads.
using ThreadStarter = std::function<absl::StatusOr<std::thread>(std::function<void()> body)>;

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_SOCKET_START_THREAD_H_
