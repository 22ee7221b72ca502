// A library that is loaded before libc into a daemon (LD_PRELOAD) that was built with
// --config=hops. It writes down which functions each thread enters and leaves, while
// gradient_hops.py asks for it.
//
//   CAPSTAN_CALL_TRACE  a folder. The byte in its file `on` is 1 while calls are to be recorded.
//                       Each process writes <pid>.calls: a head and records. Without the variable
//                       nothing is recorded.
//
// Thread safety: thread-safe; a record is written by the one thread that has taken its index.
#include <fcntl.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <string>

namespace {

constexpr uint64_t kRecordsMax = 1 << 20;  // Later calls are not recorded.

enum class What : uint32_t { kEntered, kLeft, kThread };

// gradient_hops.py reads them so. Addresses are those of the program's symbol table.
struct Record {
  uint64_t nanoseconds;  // CLOCK_MONOTONIC, which all processes of the machine share.
  uint64_t function;     // kThread: the first function that the thread has entered.
  uint64_t site;         // kEntered: the code from which the entry was reported.
  uint32_t thread;
  What what;
};
static_assert(sizeof(Record) == 32);

struct Trace {
  std::atomic<uint64_t> count;  // May exceed kRecordsMax.
  uint64_t unused[3];
  Record records[kRecordsMax];
};

struct Thread {
  uint32_t id = 0;
  void* first = nullptr;
  bool told = false;
};

// Constant once the library is loaded.
std::atomic<uint8_t>* on = nullptr;
Trace* trace = nullptr;
uint64_t base = 0;

thread_local Thread self;

void* Map(const std::string& path, size_t bytes) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) return nullptr;
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return mapped == MAP_FAILED ? nullptr : mapped;
}

int TakeBase(dl_phdr_info* info, size_t, void*) {
  base = info->dlpi_addr;
  return 1;  // The first one is the program; no others are wanted.
}

__attribute__((constructor)) void Open() {
  const char* const folder = getenv("CAPSTAN_CALL_TRACE");
  if (folder == nullptr) return;
  dl_iterate_phdr(TakeBase, nullptr);
  const std::string prefix = std::string(folder) + "/";
  trace = static_cast<Trace*>(Map(prefix + std::to_string(getpid()) + ".calls", sizeof(Trace)));
  if (trace != nullptr) on = static_cast<std::atomic<uint8_t>*>(Map(prefix + "on", 1));
}

void Write(What what, void* function, void* site) {
  const uint64_t index = trace->count.fetch_add(1, std::memory_order_relaxed);
  if (index >= kRecordsMax) return;
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  trace->records[index] = {
      .nanoseconds =
          static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec),
      .function = reinterpret_cast<uint64_t>(function) - base,
      .site = reinterpret_cast<uint64_t>(site) - base,
      .thread = self.id,
      .what = what,
  };
}

void Report(What what, void* function, void* site) {
  if (on == nullptr) return;
  if (self.first == nullptr) self.first = function;
  if (on->load(std::memory_order_relaxed) == 0) return;
  if (!self.told) {
    self.told = true;
    self.id = static_cast<uint32_t>(syscall(SYS_gettid));
    Write(What::kThread, self.first, nullptr);
  }
  Write(what, function, site);
}

}  // namespace

// With -finstrument-functions GCC calls these at the begin and the end of each function.
extern "C" {

void __cyg_profile_func_enter(void* function, void*) {
  Report(What::kEntered, function, __builtin_return_address(0));
}

void __cyg_profile_func_exit(void* function, void*) { Report(What::kLeft, function, nullptr); }
}
