#include "kernels/cuda/emulation/grid/grid.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "common/random/philox.h"
#include "kernels/cuda/emulation/card.h"
#include "kernels/cuda/emulation/counts.h"
#include "kernels/cuda/emulation/grid/fiber.h"
#include "kernels/cuda/emulation/runtime.h"

namespace capstan::kernels::cuda::emulation {
namespace {

constexpr unsigned kGridYMax = 65535;
// In a grid of one line, this many consecutive blocks touch memory much longer than a page.
constexpr uint64_t kBlocksTogether = 128;

[[noreturn]] void Fail(const char* what) {
  std::fprintf(stderr, "emulated GPU: %s\n", what);
  std::abort();
}

enum class At { kNew, kReady, kBarrier, kExchange, kDone };

struct Thread {
  At at = At::kNew;
  uint3 index{};
  int exchanges = 0;
  Fiber* fiber = nullptr;  // The fiber that runs it; null before it begins.
};

struct Warp {
  std::array<WarpWords, 2> words;  // Used in turns: a lane may still read the previous ones.
  unsigned arrived = 0;
};

// Runs the threads of blocks, one block at a time. It keeps its fibers from block to block.
class BlockRunner {
 public:
  // Runs a block. Returns true if threads waited for each other: only then can they have used
  // shared variables.
  bool Run(dim3 block, const std::function<void()>& body, bool backwards) {
    block_ = block;
    body_ = &body;
    backwards_ = backwards;
    const size_t count = size_t{block_.x} * block_.y * block_.z;
    threads_.assign(count, Thread());
    warps_.assign((count + kWarpLanes - 1) / kWarpLanes, Warp());
    for (size_t i = 0; i < count; ++i) threads_[i].index = IndexOf(static_cast<unsigned>(i));
    begun_ = 0;
    live_ = count;
    waiting_ = 0;
    met_ = false;
    while (live_ > 0) Round();
    return met_;
  }

  void Sync() {
    met_ = true;
    ++waiting_;
    Wait(At::kBarrier);
  }

  const WarpWords& Exchange(unsigned mask, uint64_t mine) {
    if (mask != 0xffffffffu) Fail("a kernel exchanges in a part of a warp, which is not emulated");
    met_ = true;
    Thread& thread = *current_;
    const size_t number = Number(thread);
    const size_t first = number / kWarpLanes * kWarpLanes;
    if (first + kWarpLanes > threads_.size()) Fail("a kernel exchanges in a warp with fewer lanes");
    Warp& warp = warps_[number / kWarpLanes];
    WarpWords& words = warp.words[static_cast<size_t>(thread.exchanges++ % 2)];
    words[number % kWarpLanes] = mine;
    warp.arrived |= 1u << (number % kWarpLanes);
    if (warp.arrived != mask) {
      Wait(At::kExchange);
      return words;
    }
    warp.arrived = 0;
    for (size_t lane = first; lane < first + kWarpLanes; ++lane) {
      if (threads_[lane].at == At::kExchange) threads_[lane].at = At::kReady;
    }
    return words;
  }

  int LaneNow() const { return static_cast<int>(Number(*current_) % kWarpLanes); }

 private:
  size_t Number(const Thread& thread) const { return static_cast<size_t>(&thread - &threads_[0]); }

  uint3 IndexOf(unsigned i) const {
    return {i % block_.x, i / block_.x % block_.y, i / block_.x / block_.y};
  }

  // Runs every thread that can go on until it waits or ends.
  void Round() {
    bool moved = begun_ < threads_.size();
    while (begun_ < threads_.size()) FreshFiber()->Resume();
    for (size_t i = 0; i < threads_.size(); ++i) {
      Thread& thread = threads_[InOrder(i)];
      if (thread.at != At::kReady) continue;
      moved = true;
      Enter(thread);
      thread.fiber->Resume();
    }
    if (live_ == threads_.size() && waiting_ == live_) {
      waiting_ = 0;
      for (Thread& thread : threads_) {
        if (thread.at == At::kBarrier) thread.at = At::kReady;
      }
    } else if (!moved) {
      Fail("threads of a block wait for some that have ended or wait elsewhere");
    }
  }

  size_t InOrder(size_t i) const { return backwards_ ? threads_.size() - 1 - i : i; }

  void Enter(Thread& thread) {
    current_ = &thread;
    threadIdx = thread.index;
  }

  // The body of every fiber: runs threads that have not begun, one after the other. A thread that
  // waits keeps the fiber until it ends.
  void Serve(Fiber& self) {
    for (;;) {
      while (begun_ < threads_.size()) {
        Thread& thread = threads_[InOrder(begun_++)];
        Enter(thread);
        thread.fiber = &self;
        (*body_)();
        current_->at = At::kDone;
        --live_;
      }
      idle_.push_back(&self);
      self.Pause();
    }
  }

  void Wait(At where) {
    Thread& thread = *current_;
    thread.at = where;
    thread.fiber->Pause();
  }

  Fiber* FreshFiber() {
    if (idle_.empty()) {
      fibers_.push_back(std::make_unique<Fiber>([this](Fiber& self) { Serve(self); }));
      return fibers_.back().get();
    }
    Fiber* const fiber = idle_.back();
    idle_.pop_back();
    return fiber;
  }

  dim3 block_;
  const std::function<void()>* body_ = nullptr;
  bool backwards_ = false;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  size_t begun_ = 0;
  size_t live_ = 0;
  size_t waiting_ = 0;  // Threads at the barrier.
  bool met_ = false;
  Thread* current_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
};

BlockRunner& Runner() {
  static thread_local BlockRunner runner;
  return runner;
}

// Writes word by word, since AddressSanitizer's memset reports the gaps between variables.
#if defined(__SANITIZE_ADDRESS__)
__attribute__((no_sanitize_address))
#endif
void FillWithNan(SharedMemory shared) {
  auto* const end = reinterpret_cast<volatile uint64_t*>(shared.end);
  for (auto* at = reinterpret_cast<volatile uint64_t*>(shared.begin); at < end; ++at) {
    *at = ~uint64_t{0};
  }
}

bool IsPossible(dim3 grid, dim3 block) {
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  return grid.x > 0 && grid.x <= 0x7fffffffu && grid.y > 0 && grid.y <= kGridYMax && grid.z > 0 &&
         grid.z <= kGridYMax && threads > 0 && threads <= uint64_t{kBlockThreadsMax} &&
         block.z <= 64;
}

// Runs blocks [begin, end) of a grid.
void RunBlocks(dim3 grid, dim3 block, SharedMemory shared, const std::function<void()>& thread,
               uint64_t begin, uint64_t end) {
  // Shared variables are static in the process, so only one grid may run.
  static std::mutex mutex;
  static uint64_t launches = 0;
  const std::lock_guard<std::mutex> lock(mutex);
  const uint32_t order = PhiloxWord(/*key=*/0, launches++);
  const bool blocks_backwards = (order & 1) != 0;
  const bool threads_backwards = (order & 2) != 0;
  gridDim = grid;
  bool used = true;  // Shared variables may hold values of an earlier grid.
  for (uint64_t i = begin; i < end; ++i) {
    const uint64_t at = blocks_backwards ? begin + (end - 1 - i) : i;
    blockIdx = {static_cast<unsigned>(at % grid.x), static_cast<unsigned>(at / grid.x % grid.y),
                static_cast<unsigned>(at / grid.x / grid.y)};
    if (used) FillWithNan(shared);
    used = Runner().Run(block, thread, threads_backwards);
  }
}

}  // namespace

void LaunchGrid(dim3 grid, dim3 block, cudaStream_t stream, SharedMemory shared,
                std::function<void()> thread) {
  if (!IsPossible(grid, block)) {
    SetLastError(cudaErrorInvalidConfiguration);
    return;
  }
  const uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
  auto run = [grid, block, shared, thread = std::move(thread)](uint64_t begin, uint64_t end) {
    RunBlocks(grid, block, shared, thread, begin, end);
  };
  if (CountsOrNull() == nullptr) {
    SetLastError(Enqueue(stream, [run = std::move(run), blocks] {
      run(0, blocks);
      return cudaSuccess;
    }));
    return;
  }
  // A graph's kernel touches the same bytes at each launch.
  const auto bytes = std::make_shared<std::optional<uint64_t>>();
  const uint64_t unit = blocks > grid.x ? grid.x : kBlocksTogether;
  SetLastError(Enqueue(stream, [run = std::move(run), blocks, unit, bytes] {
    if (!bytes->has_value()) *bytes = BytesTouched(blocks, unit, run);
    CountKernel(**bytes);
    return cudaSuccess;
  }));
}

void SyncThreads() { Runner().Sync(); }
const WarpWords& ExchangeInWarp(unsigned mask, uint64_t mine) {
  return Runner().Exchange(mask, mine);
}
int Lane() { return Runner().LaneNow(); }

}  // namespace capstan::kernels::cuda::emulation
