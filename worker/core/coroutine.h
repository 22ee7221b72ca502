// Coroutine: a C++20 coroutine that another coroutine calls and awaits; calls may be nested.
//
// A call runs at once, as a function does, until it ends or has to wait. If nothing ever waits,
// nothing is ever suspended and the stack is that of ordinary calls. Destroying a Coroutine
// destroys its frame, and with it what it awaits: this is how a simulated process is killed.
//   Coroutine<absl::Status> step = Step(work);
//   const absl::Status status = co_await step;
// Give the awaited object a name, as above: GCC 12 mishandles some temporaries in co_await.
// Thread safety: thread-compatible; the thread that resumes a handle runs all nested coroutines.
// Invariants: (1) a Coroutine is awaited at most once, by a coroutine that outlives it;
//             (2) T is default constructible.
#ifndef CAPSTAN_WORKER_CORE_COROUTINE_H_
#define CAPSTAN_WORKER_CORE_COROUTINE_H_

#include <coroutine>
#include <exception>
#include <utility>

namespace capstan::worker {

template <typename T>
class Coroutine {
 public:
  struct promise_type {
    // Resumes the caller, if it has begun to wait; the caller may destroy this frame.
    struct AtEnd {
      bool await_ready() const noexcept { return false; }
      void await_suspend(std::coroutine_handle<promise_type> self) const noexcept {
        const std::coroutine_handle<> caller = self.promise().caller;
        if (caller) caller.resume();
      }
      void await_resume() const noexcept {}
    };
    Coroutine get_return_object() {
      return Coroutine(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    AtEnd final_suspend() const noexcept { return {}; }
    void return_value(T value) { result = std::move(value); }
    void unhandled_exception() const noexcept { std::terminate(); }  // The project throws none.

    T result{};
    std::coroutine_handle<> caller;
  };

  Coroutine() = default;
  Coroutine(Coroutine&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Coroutine& operator=(Coroutine&& other) noexcept {
    if (this != &other) {
      if (handle_) handle_.destroy();
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  ~Coroutine() {
    if (handle_) handle_.destroy();
  }

  bool ended() const { return handle_ && handle_.done(); }
  const T& result() const { return handle_.promise().result; }  // REQUIRES: ended().

  // The three functions that co_await calls.
  bool await_ready() const { return handle_.done(); }
  void await_suspend(std::coroutine_handle<> caller) { handle_.promise().caller = caller; }
  T await_resume() { return std::move(handle_.promise().result); }

 private:
  explicit Coroutine(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  std::coroutine_handle<promise_type> handle_;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_CORE_COROUTINE_H_
