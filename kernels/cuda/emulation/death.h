// DeathOf: runs forbidden code in a child process, and reports how the process ended.
//
// Thread safety: only for tests with one thread, since it forks.
#ifndef CAPSTAN_KERNELS_CUDA_EMULATION_DEATH_H_
#define CAPSTAN_KERNELS_CUDA_EMULATION_DEATH_H_

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>

namespace capstan::kernels::cuda::emulation {

struct Death {
  int signal = 0;     // The signal that ended the process; 0: none did.
  std::string words;  // The process's output on stderr.
};

// Calls body() in a child process, with default signal handlers. A failed assertion in the child
// ends it with SIGABRT.
template <typename Body>
Death DeathOf(const Body& body) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) return {.words = "no pipe"};
  const pid_t child = fork();
  if (child == 0) {
    for (const int number : {SIGSEGV, SIGBUS, SIGABRT}) signal(number, SIG_DFL);
    dup2(ends[1], STDERR_FILENO);
    try {
      body();
    } catch (...) {
      abort();
    }
    _exit(0);
  }
  close(ends[1]);
  Death death;
  std::array<char, 256> part{};
  for (;;) {
    const ssize_t count = read(ends[0], part.data(), part.size());
    if (count <= 0) break;
    death.words.append(part.data(), static_cast<size_t>(count));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) death.signal = WTERMSIG(status);
  return death;
}

}  // namespace capstan::kernels::cuda::emulation

#endif  // CAPSTAN_KERNELS_CUDA_EMULATION_DEATH_H_
