// A function on a stack of its own, that can stop in its midst and go on later.
//
// Thread safety: a fiber belongs to the thread that made it.
#ifndef CAPSTAN_KERNELS_CUDA_EMULATION_FIBER_H_
#define CAPSTAN_KERNELS_CUDA_EMULATION_FIBER_H_

#include <setjmp.h>

#include <cstddef>
#include <functional>

namespace capstan::kernels::cuda::emulation {

class Fiber {
 public:
  // `body` begins with the first Resume(). It never returns: it pauses for the last time.
  explicit Fiber(std::function<void(Fiber& self)> body);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs it, from outside, until it pauses.
  void Resume();
  // Back to who resumed it; from inside.
  void Pause();

 private:
  // A stack as AddressSanitizer wants to hear of it.
  struct Stack {
    const void* bottom = nullptr;
    size_t bytes = 0;
  };

  static void Enter(unsigned high, unsigned low);
  // Around a switch of stacks: to which one, and what Leave returned and which one was left.
  static void* Leave(const Stack& target);
  static void Arrive(void* kept, Stack* left);

  const std::function<void(Fiber& self)> body_;
  char* const stack_;  // With a page below that nobody may touch.
  bool begun_ = false;
  jmp_buf inside_;
  jmp_buf outside_;
  Stack outside_stack_;
};

}  // namespace capstan::kernels::cuda::emulation

#endif  // CAPSTAN_KERNELS_CUDA_EMULATION_FIBER_H_
