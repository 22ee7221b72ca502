// A program with one fault of the caller's choice, to show that a sanitizer reports it.
//
//   planted_faults race            an unguarded counter, written by a call's handler and by main
//   planted_faults guarded         the same with a mutex: no fault
//   planted_faults use_after_free | leak | overflow
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/net/grpc/channel.h"
#include "common/net/grpc/grpc_server.h"
#include "proto/scheduler.grpc.pb.h"

namespace {

using capstan::v1::GetJobRequest;
using capstan::v1::GetJobResponse;
using capstan::v1::Scheduler;

class Counter final : public Scheduler::CallbackService {
 public:
  explicit Counter(bool guarded) : guarded_(guarded) {}

  void Add() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (guarded_) mutex_.Lock();
    ++count_;
    if (guarded_) mutex_.Unlock();
  }

  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context, const GetJobRequest*,
                                   GetJobResponse*) override {
    Add();
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

 private:
  const bool guarded_;
  absl::Mutex mutex_;
  int count_ = 0;
};

int Call(bool guarded) {
  Counter counter(guarded);
  const auto server = capstan::GrpcServer::Start({.services = {&counter}});
  if (!server.ok()) return 1;
  const auto stub = Scheduler::NewStub(
      capstan::MakeChannel((*server)->address(), capstan::ChannelKind::kControl));
  grpc::ClientContext context;
  GetJobRequest request;
  GetJobResponse response;
  absl::Notification answered;
  bool ok = false;
  stub->async()->GetJob(&context, &request, &response, [&](const grpc::Status& status) {
    ok = status.ok();
    answered.Notify();
  });
  counter.Add();
  answered.WaitForNotification();
  return ok ? 0 : 1;
}

// Values that the compiler must not know.
volatile int one = 1;
volatile int sum = 0;
int* volatile kept = nullptr;

int UseAfterFree() {
  kept = new int(one);
  delete kept;
  return *kept - one;
}

int Leak() {
  kept = new int(one);
  kept = nullptr;
  return 0;
}

// The sum is stored: compared at once, the compiler would fold the addition away, and the fault.
int Overflow() {
  sum = std::numeric_limits<int>::max() + one;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string fault = argc == 2 ? argv[1] : "";
  if (fault == "race" || fault == "guarded") return Call(fault == "guarded");
  if (fault == "use_after_free") return UseAfterFree();
  if (fault == "leak") return Leak();
  if (fault == "overflow") return Overflow();
  std::fprintf(stderr, "fault: \"%s\"; expected one of those in planted_faults.cc\n",
               fault.c_str());
  return 2;
}
