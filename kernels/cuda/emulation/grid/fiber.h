// Fiber: a function with its own stack that can pause and resume later. The threads of emulated
// kernels run on fibers (grid.cc).
//
// Thread safety: only the thread that made a fiber uses it.
#ifndef CAPSTAN_KERNELS_CUDA_EMULATION_GRID_FIBER_H_
#define CAPSTAN_KERNELS_CUDA_EMULATION_GRID_FIBER_H_

#include <setjmp.h>

#include <cstddef>
#include <functional>

namespace capstan::kernels::cuda::emulation {

class Fiber {
 public:
  // `body` begins with the first Resume(). REQUIRES: it never returns; at its end it pauses.
  explicit Fiber(std::function<void(Fiber& self)> body);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs the fiber until it pauses. Called from outside the fiber.
  void Resume();
  // Returns control to the caller of Resume(). Called from inside the fiber.
  void Pause();

 private:
  // A stack, as AddressSanitizer's functions take it.
  struct Stack {
    const void* bottom = nullptr;
    size_t bytes = 0;
  };

  static void Enter(unsigned high, unsigned low);
  // Tell AddressSanitizer about a switch of stacks. Leave is called before it, with the stack to
  // switch to; Arrive after it, with Leave's result, and stores the stack that was left.
  static void* Leave(const Stack& target);
  static void Arrive(void* kept, Stack* left);

  const std::function<void(Fiber& self)> body_;
  char* const stack_;  // Begins with a guard page, below the stack.
  bool begun_ = false;
  jmp_buf inside_;
  jmp_buf outside_;
  Stack outside_stack_;
};

}  // namespace capstan::kernels::cuda::emulation

#endif  // CAPSTAN_KERNELS_CUDA_EMULATION_GRID_FIBER_H_
