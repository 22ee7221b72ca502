#include "kernels/cuda/emulation/grid/fiber.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace capstan::kernels::cuda::emulation {
namespace {

constexpr size_t kGuardBytes = 4096;
constexpr size_t kStackBytes = size_t{128} << 10;

char* MapStack() {
  void* const memory = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, kGuardBytes, PROT_NONE) != 0) {
    std::perror("emulated GPU: no memory for the stack of a thread");
    std::abort();
  }
  return static_cast<char*>(memory);
}

}  // namespace

Fiber::Fiber(std::function<void(Fiber& self)> body) : body_(std::move(body)), stack_(MapStack()) {}

Fiber::~Fiber() { munmap(stack_, kGuardBytes + kStackBytes); }

void Fiber::Enter(unsigned high, unsigned low) {
  auto* const self = reinterpret_cast<Fiber*>(static_cast<uintptr_t>(high) << 32 | low);
  self->Arrive(nullptr, &self->outside_stack_);
  self->body_(*self);
  std::abort();  // The body returned, which it must not.
}

// A context begins a fiber; after that, jumps enter and leave it. Jumps make no system calls, while
// a switch of contexts saves the signal mask, which takes two.
void Fiber::Resume() {
  void* const kept = Leave({stack_ + kGuardBytes, kStackBytes});
  if (_setjmp(outside_) == 0) {
    if (std::exchange(begun_, true)) _longjmp(inside_, 1);
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = stack_ + kGuardBytes;
    context.uc_stack.ss_size = kStackBytes;
    context.uc_link = nullptr;
    const auto self = reinterpret_cast<uintptr_t>(this);  // makecontext passes only ints.
    makecontext(&context, reinterpret_cast<void (*)()>(&Fiber::Enter), 2,
                static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
    setcontext(&context);
  }
  Arrive(kept, nullptr);
}

void Fiber::Pause() {
  void* const kept = Leave(outside_stack_);
  if (_setjmp(inside_) == 0) _longjmp(outside_, 1);
  Arrive(kept, &outside_stack_);
}

void* Fiber::Leave(const Stack& target) {
  void* kept = nullptr;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&kept, target.bottom, target.bytes);
#else
  static_cast<void>(target);
#endif
  return kept;
}

void Fiber::Arrive(void* kept, Stack* left) {
#if defined(__SANITIZE_ADDRESS__)
  Stack ignored;
  if (left == nullptr) left = &ignored;
  __sanitizer_finish_switch_fiber(kept, &left->bottom, &left->bytes);
#else
  static_cast<void>(kept);
  static_cast<void>(left);
#endif
}

}  // namespace capstan::kernels::cuda::emulation
