#include "scheduler/cli/console/interrupts.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>

namespace capstan::cli {
namespace {

constexpr std::array<int, 3> kSignals = {SIGINT, SIGTERM, SIGHUP};

// The handler writes only this variable and the pipe.
std::atomic<int> g_signal{0};
int g_wake_pipe[2] = {-1, -1};

std::array<struct sigaction, kSignals.size()> g_before;

void OnSignal(int signal) {
  const int saved = errno;
  int none = 0;
  g_signal.compare_exchange_strong(none, signal);
  const char byte = 0;
  if (g_wake_pipe[1] >= 0) [[maybe_unused]]
    const auto ignored = write(g_wake_pipe[1], &byte, 1);
  errno = saved;
}

}  // namespace

Interrupts::Interrupts() {
  g_signal = 0;
  // Without the pipe, a wait may end only at its deadline after a signal.
  if (pipe2(g_wake_pipe, O_CLOEXEC | O_NONBLOCK) != 0) g_wake_pipe[0] = g_wake_pipe[1] = -1;
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &g_before[i]);
}

Interrupts::~Interrupts() {
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &g_before[i], nullptr);
  for (int& end : g_wake_pipe) {
    if (end >= 0) close(end);
    end = -1;
  }
}

int Interrupts::Signal() { return g_signal; }

bool Interrupts::Sleep(absl::Duration duration) {
  if (Signal() != 0) return true;
  const int64_t milliseconds = std::clamp<int64_t>(absl::ToInt64Milliseconds(duration), 0, 60'000);
  struct pollfd wake = {g_wake_pipe[0], POLLIN, 0};
  poll(&wake, 1, static_cast<int>(milliseconds));  // EINTR also means that a signal came.
  return Signal() != 0;
}

}  // namespace capstan::cli
