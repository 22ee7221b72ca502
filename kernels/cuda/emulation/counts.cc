#include "kernels/cuda/emulation/counts.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <unordered_map>
#include <vector>

#include "kernels/cuda/emulation/runtime_state.h"

namespace capstan::kernels::cuda::emulation {
namespace {

constexpr uint64_t kGroups = 4;  // The groups of blocks that run in a large grid.
constexpr uintptr_t kPageBytes = 4096;
constexpr uintptr_t kWritten = 1;  // Bit in an entry of `touched`, besides the page's address.

Counts* Open(const char* path) {
  if (path == nullptr) return nullptr;
  const int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
  void* counts = MAP_FAILED;
  if (file >= 0 && ftruncate(file, sizeof(Counts)) == 0) {
    counts = mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  if (counts == MAP_FAILED) {
    std::perror("emulated GPU: CAPSTAN_EMULATED_COUNTS");
    std::abort();
  }
  close(file);
  return new (counts) Counts;
}

// The pages of device memory that were read or written since TouchedBy closed it. A page that was
// read and then written has two entries.
std::vector<uintptr_t> touched;
struct sigaction before_tracing;

// Handles SIGSEGV: notes the page and opens it. A page that is read opens for reading alone, so
// that a later write is noticed, too.
void OnFault(int, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  if (!TheRuntime().memory.IsArena(address)) {
    sigaction(SIGSEGV, &before_tracing, nullptr);  // The access is retried, and fails.
    return;
  }
  constexpr greg_t kWrite = 2;  // The bit for writes in the processor's page fault code.
  const auto* const state = static_cast<const ucontext_t*>(context);
  const bool writes = (state->uc_mcontext.gregs[REG_ERR] & kWrite) != 0;
  const uintptr_t page = address / kPageBytes * kPageBytes;
  touched.push_back(writes ? page | kWritten : page);
  mprotect(reinterpret_cast<void*>(page), kPageBytes, writes ? PROT_READ | PROT_WRITE : PROT_READ);
}

// Runs `work` and returns the entries of `touched`. Discards everything that `work` wrote.
std::vector<uintptr_t> TouchedBy(const std::function<void()>& work) {
  Memory& memory = TheRuntime().memory;
  const DeviceSet open = memory.SetOpen(0);
  touched.clear();
  struct sigaction tracing = {};
  tracing.sa_sigaction = &OnFault;
  tracing.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &tracing, &before_tracing);
  work();
  sigaction(SIGSEGV, &before_tracing, nullptr);
  // Neighbouring pages are given back in one call.
  std::sort(touched.begin(), touched.end());
  for (size_t i = 0; i < touched.size();) {
    const uintptr_t begin = touched[i] & ~kWritten;
    uintptr_t end = begin;
    for (; i < touched.size() && (touched[i] & ~kWritten) <= end; ++i) {
      end = (touched[i] & ~kWritten) + kPageBytes;
    }
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
  }
  memory.SetOpen(open);
  return touched;
}

}  // namespace

Counts* CountsOrNull() {
  static Counts* const counts = Open(std::getenv("CAPSTAN_EMULATED_COUNTS"));
  return counts;
}

bool CountCopy(uint64_t bytes) {
  Counts* const counts = CountsOrNull();
  if (counts != nullptr) counts->bytes += bytes;
  return counts != nullptr;
}

bool CountKernel(uint64_t bytes) {
  const bool counted = CountCopy(bytes);
  if (counted) ++CountsOrNull()->kernels;
  return counted;
}

uint64_t BytesTouched(uint64_t blocks, uint64_t unit,
                      const std::function<void(uint64_t begin, uint64_t end)>& run) {
  const uint64_t units = (blocks + unit - 1) / unit;
  if (units <= kGroups) return kPageBytes * TouchedBy([&] { run(0, blocks); }).size();
  std::unordered_map<uintptr_t, uint64_t> groups_of;  // Entry to the number of its groups.
  for (uint64_t group = 0; group < kGroups; ++group) {
    const uint64_t begin = (2 * group + 1) * units / (2 * kGroups) * unit;
    for (const uintptr_t entry : TouchedBy([&] { run(begin, std::min(begin + unit, blocks)); })) {
      ++groups_of[entry];
    }
  }
  uint64_t shared = 0, own = 0;
  for (const auto& [entry, groups] : groups_of) {
    if (groups > kGroups / 2) {
      ++shared;
    } else {
      own += groups;
    }
  }
  return kPageBytes * (shared + own * units / kGroups);
}

}  // namespace capstan::kernels::cuda::emulation
