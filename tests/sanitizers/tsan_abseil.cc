// absl::Mutex and absl::CondVar that ThreadSanitizer understands.
//
// The system's Abseil is compiled without the sanitizer, so TSan sees neither its locks nor what
// they order, and reports races that are none. --config=tsan links this file into every program.
// A definition in the program wins over a shared library's, for calls of our code and of gRPC
// alike; each function here tells TSan what happens and forwards to the library's own.
//
// While the library's function runs, TSan passes over this thread's memory accesses. It may
// evaluate conditions there, its own and other threads' (Unlock looks for whom to wake).
//
// Thread safety: thread-safe.
#include <dlfcn.h>
#include <link.h>
#include <sanitizer/tsan_interface.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "tests/sanitizers/library_function.h"

namespace {

using capstan::sanitizers::LibraryFunction;

// How deep this thread is in functions of the library: what they call in turn is not told again.
thread_local int depth = 0;

// A string as a template argument.
template <size_t kSize>
struct Name {
  constexpr Name(const char (&name)[kSize]) { std::copy_n(name, kSize, text); }
  char text[kSize];
};

// Calls the library's function of this mangled name and type; the first argument is the object.
template <Name kName, typename Function, typename... Arguments>
auto Forward(Arguments&&... arguments) {
  static Function* const function = LibraryFunction<Function>(kName.text);
  struct Inside {
    Inside() { ++depth; }
    ~Inside() { --depth; }
  } const inside;
  return function(std::forward<Arguments>(arguments)...);
}

template <typename Call>
auto TellLock(absl::Mutex* mutex, unsigned flags, Call call) {
  if (depth > 0) return call();
  struct Locking {
    absl::Mutex* mutex;
    unsigned flags;
    Locking(absl::Mutex* m, unsigned f) : mutex(m), flags(f) { __tsan_mutex_pre_lock(m, f); }
    ~Locking() { __tsan_mutex_post_lock(mutex, flags, 0); }
  } const locking(mutex, flags);
  return call();
}

template <typename Call>
bool TellTryLock(absl::Mutex* mutex, unsigned flags, Call call) {
  if (depth > 0) return call();
  __tsan_mutex_pre_lock(mutex, flags);
  const bool locked = call();
  __tsan_mutex_post_lock(mutex, locked ? flags : flags | __tsan_mutex_try_lock_failed, 0);
  return locked;
}

template <typename Call>
void TellUnlock(absl::Mutex* mutex, unsigned flags, Call call) {
  if (depth > 0) return call();
  __tsan_mutex_pre_unlock(mutex, flags);
  call();
  __tsan_mutex_post_unlock(mutex, flags);
}

// Whether the caller, who holds the mutex, holds it alone: a bit of its only word (kMuWriter).
bool HeldByWriter(const absl::Mutex* mutex) {
  constexpr intptr_t kWriter = 0x8;
  const auto* word = reinterpret_cast<const intptr_t*>(mutex);
  return (__atomic_load_n(word, __ATOMIC_RELAXED) & kWriter) != 0;
}

// Reports a call that gives the mutex up for a while and holds it again when it returns.
template <typename Call>
auto TellWait(absl::Mutex* mutex, Call call) {
  if (depth > 0) return call();
  const unsigned flags = HeldByWriter(mutex) ? 0 : __tsan_mutex_read_lock;
  __tsan_mutex_pre_unlock(mutex, flags);
  __tsan_mutex_post_unlock(mutex, flags);
  return TellLock(mutex, flags, call);
}

// Whether this is an address in gRPC's code. What orders its last use of a mutex before the mutex's
// end are atomics that TSan does not see.
bool InGrpc(void* address) {
  dl_find_object found;
  if (_dl_find_object(address, &found) != 0) return false;
  const std::string_view path = found.dlfo_link_map->l_name;
  return path.find("/libgrpc") != path.npos || path.find("/libgpr.") != path.npos;
}

}  // namespace

namespace absl {
inline namespace debian3 {  // With another Abseil this fails to compile.

Mutex::~Mutex() {
  if (!InGrpc(__builtin_return_address(0))) __tsan_mutex_destroy(this, 0);
  Forward<"_ZN4absl7debian35MutexD1Ev", void(Mutex*)>(this);
}

void Mutex::Lock() {
  TellLock(this, 0, [&] { return Forward<"_ZN4absl7debian35Mutex4LockEv", void(Mutex*)>(this); });
}

void Mutex::Unlock() {
  TellUnlock(this, 0,
             [&] { return Forward<"_ZN4absl7debian35Mutex6UnlockEv", void(Mutex*)>(this); });
}

bool Mutex::TryLock() {
  return TellTryLock(this, __tsan_mutex_try_lock, [&] {
    return Forward<"_ZN4absl7debian35Mutex7TryLockEv", bool(Mutex*)>(this);
  });
}

void Mutex::ReaderLock() {
  TellLock(this, __tsan_mutex_read_lock,
           [&] { return Forward<"_ZN4absl7debian35Mutex10ReaderLockEv", void(Mutex*)>(this); });
}

void Mutex::ReaderUnlock() {
  TellUnlock(this, __tsan_mutex_read_lock,
             [&] { return Forward<"_ZN4absl7debian35Mutex12ReaderUnlockEv", void(Mutex*)>(this); });
}

bool Mutex::ReaderTryLock() {
  return TellTryLock(this, __tsan_mutex_try_read_lock, [&] {
    return Forward<"_ZN4absl7debian35Mutex13ReaderTryLockEv", bool(Mutex*)>(this);
  });
}

void Mutex::Await(const Condition& condition) {
  TellWait(this, [&] {
    return Forward<"_ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE",
                   void(Mutex*, const Condition&)>(this, condition);
  });
}

bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  return TellWait(this, [&] {
    return Forward<"_ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE",
                   bool(Mutex*, const Condition&, Duration)>(this, condition, timeout);
  });
}

bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  return TellWait(this, [&] {
    return Forward<"_ZN4absl7debian35Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE",
                   bool(Mutex*, const Condition&, Time)>(this, condition, deadline);
  });
}

// LockWhen... hold the mutex when they return, whether or not the condition came true.
void Mutex::LockWhen(const Condition& condition) {
  TellLock(this, 0, [&] {
    return Forward<"_ZN4absl7debian35Mutex8LockWhenERKNS0_9ConditionE",
                   void(Mutex*, const Condition&)>(this, condition);
  });
}

bool Mutex::LockWhenWithTimeout(const Condition& condition, Duration timeout) {
  return TellLock(this, 0, [&] {
    return Forward<"_ZN4absl7debian35Mutex19LockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE",
                   bool(Mutex*, const Condition&, Duration)>(this, condition, timeout);
  });
}

bool Mutex::LockWhenWithDeadline(const Condition& condition, Time deadline) {
  return TellLock(this, 0, [&] {
    return Forward<"_ZN4absl7debian35Mutex20LockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE",
                   bool(Mutex*, const Condition&, Time)>(this, condition, deadline);
  });
}

void Mutex::ReaderLockWhen(const Condition& condition) {
  TellLock(this, __tsan_mutex_read_lock, [&] {
    return Forward<"_ZN4absl7debian35Mutex14ReaderLockWhenERKNS0_9ConditionE",
                   void(Mutex*, const Condition&)>(this, condition);
  });
}

bool Mutex::ReaderLockWhenWithTimeout(const Condition& condition, Duration timeout) {
  return TellLock(this, __tsan_mutex_read_lock, [&] {
    return Forward<
        "_ZN4absl7debian35Mutex25ReaderLockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE",
        bool(Mutex*, const Condition&, Duration)>(this, condition, timeout);
  });
}

bool Mutex::ReaderLockWhenWithDeadline(const Condition& condition, Time deadline) {
  return TellLock(this, __tsan_mutex_read_lock, [&] {
    return Forward<"_ZN4absl7debian35Mutex26ReaderLockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE",
                   bool(Mutex*, const Condition&, Time)>(this, condition, deadline);
  });
}

// The library's would unlock by a call within itself.
void ReleasableMutexLock::Release() {
  mu_->Unlock();
  mu_ = nullptr;
}

// The mutex, not the signal, orders the data that a waiter may rely on, so TSan is not told of
// signals.
void CondVar::Wait(Mutex* mutex) {
  TellWait(mutex, [&] {
    return Forward<"_ZN4absl7debian37CondVar4WaitEPNS0_5MutexE", void(CondVar*, Mutex*)>(this,
                                                                                         mutex);
  });
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  return TellWait(mutex, [&] {
    return Forward<"_ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE",
                   bool(CondVar*, Mutex*, Duration)>(this, mutex, timeout);
  });
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  return TellWait(mutex, [&] {
    return Forward<"_ZN4absl7debian37CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE",
                   bool(CondVar*, Mutex*, Time)>(this, mutex, deadline);
  });
}

}  // namespace debian3
}  // namespace absl
