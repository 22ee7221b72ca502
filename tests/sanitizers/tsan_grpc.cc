// Tells ThreadSanitizer how gRPC orders threads, as the libraries of gRPC are compiled without it.
//
// gRPC hands a call's operations from the thread that starts them to the one that learns of their
// end by queues without locks. Two orders follow that TSan cannot see: a start comes before the end
// with the same tag; and the parts of a server's call come before its last step. A definition in
// the program wins over a shared library's, for calls of our code and of gRPC's C++ layer alike.
//
// Thread safety: thread-safe.
#include <grpc/grpc.h>
#include <grpcpp/support/server_callback.h>
#include <sanitizer/tsan_interface.h>

#include <atomic>

#include "tests/sanitizers/library_function.h"

using capstan::sanitizers::LibraryFunction;

namespace {

grpc_event Ended(const grpc_event& event) {
  if (event.type == GRPC_OP_COMPLETE) __tsan_acquire(event.tag);
  return event;
}

}  // namespace

extern "C" {

grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* operations, size_t count,
                                      void* tag, void* reserved) {
  static auto* const function =
      LibraryFunction<decltype(grpc_call_start_batch)>("grpc_call_start_batch");
  __tsan_release(tag);
  return function(call, operations, count, tag, reserved);
}

grpc_event grpc_completion_queue_next(grpc_completion_queue* queue, gpr_timespec deadline,
                                      void* reserved) {
  static auto* const function =
      LibraryFunction<decltype(grpc_completion_queue_next)>("grpc_completion_queue_next");
  return Ended(function(queue, deadline, reserved));
}

grpc_event grpc_completion_queue_pluck(grpc_completion_queue* queue, void* tag,
                                       gpr_timespec deadline, void* reserved) {
  static auto* const function =
      LibraryFunction<decltype(grpc_completion_queue_pluck)>("grpc_completion_queue_pluck");
  return Ended(function(queue, tag, deadline, reserved));
}

}  // extern "C"

namespace grpc::internal {

// Called by whoever was the last of a call's three parts to count itself off. Two of them count in
// templates that are compiled with our code, the third in gRPC's library.
void ServerCallbackCall::ScheduleOnDone(bool inline_ondone) {
  using Function = void(ServerCallbackCall*, bool);
  static Function* const function =
      LibraryFunction<Function>("_ZN4grpc8internal18ServerCallbackCall14ScheduleOnDoneEb");
  callbacks_outstanding_.load(std::memory_order_acquire);  // Acquires what the others released.
  function(this, inline_ondone);
}

}  // namespace grpc::internal
