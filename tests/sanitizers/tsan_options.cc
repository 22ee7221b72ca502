// Options and suppressions of ThreadSanitizer, part of every program of --config=tsan.
//
// They are in the program rather than in files, so that they hold wherever it is started from.
// TSAN_OPTIONS in the environment goes before them.

extern "C" const char* __tsan_default_options() {
  // history_size: how far back the other side of a race can be shown.
  // report_signal_unsafe: only Catch2's handler allocates, of signals that end a test anyway.
  return "history_size=5:second_deadlock_stack=1:report_signal_unsafe=0";
}

// `called_from_lib` passes over what a library does itself through functions that TSan replaces
// (memory, strings, files), not over what our code does when the library calls it.
extern "C" const char* __tsan_default_suppressions() {
  return R"(
# gRPC is not instrumented: it orders its own objects by atomics and queues without locks that TSan
# does not see. What it orders for its callers is told by tsan_abseil.cc and tsan_grpc.cc.
called_from_lib:libgrpc.so
called_from_lib:libgrpc++.so
called_from_lib:libgpr.so

# Abseil is not instrumented: a Status and the Cord in it are shared by an atomic count.
called_from_lib:libabsl_status.so
called_from_lib:libabsl_cord.so
# Who drops a Status last deletes it in our code, though others have dropped theirs in the library.
race:absl::debian3::Status::Unref

# gRPC writes the message of such a Status into a text of its own.
race:absl::debian3::StrAppend
race:grpc_error_get_str

# Abseil is not instrumented: the mutexes' own check for deadlocks is guarded by a spin lock.
called_from_lib:libabsl_graphcycles_internal.so

# Abseil is not instrumented: the first look at the local time zone makes a mutex in a static, whose
# guard TSan does not see; a pool of random numbers is guarded by a spin lock.
called_from_lib:libabsl_time_zone.so
called_from_lib:libabsl_random_internal_pool_urbg.so

# protobuf is not instrumented: what reflection needs is made once, behind statics whose guards TSan
# does not see.
race:google::protobuf::internal::AssignDescriptors

# gRPC is not instrumented: the handler of calls to methods that do not exist is compiled with our
# code, too, since it is a template, but run from within the library, which counts its references.
race:grpc::internal::CallbackBidiHandler<grpc::ByteBuffer, grpc::ByteBuffer>
)";
}
