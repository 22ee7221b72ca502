// FakeScheduler: the part of the Scheduler service that daemons call, on a loopback port, for tests
// of daemons.
//
// It holds each SyncNode call like the real one, until SetDesired, SetMayStop or the next call.
// Thread safety: thread-safe.
#ifndef CAPSTAN_COMMON_NET_TESTING_FAKE_SCHEDULER_H_
#define CAPSTAN_COMMON_NET_TESTING_FAKE_SCHEDULER_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/net/grpc/credentials.h"
#include "common/net/grpc/grpc_server.h"
#include "proto/scheduler.grpc.pb.h"

namespace capstan::testing {

class FakeScheduler final : public v1::Scheduler::CallbackService {
 public:
  // Listens on a free port of 127.0.0.1. Servers get a read lease of `read_lease` with each answer.
  // Null credentials: plain text. They outlive it.
  explicit FakeScheduler(absl::Duration read_lease = absl::ZeroDuration(),
                         const Credentials* credentials = nullptr);
  ~FakeScheduler() override;

  const std::string& address() const { return address_; }

  // Answers held and later calls with this desired state; its generation is set here.
  void SetDesired(v1::SyncNodeResponse desired) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether a node that leaves may stop; true at first. Held calls are answered.
  void SetMayStop(bool may_stop) ABSL_LOCKS_EXCLUDED(mutex_);
  // Each of the next calls fails with one of these, in order; held calls fail at once with the
  // first.
  void FailRegister(std::vector<absl::Status> errors) ABSL_LOCKS_EXCLUDED(mutex_);
  void FailSync(std::vector<absl::Status> errors) ABSL_LOCKS_EXCLUDED(mutex_);
  // Runs `during` in each later Register call, before it is answered. REQUIRES: no call runs.
  void DuringRegister(std::function<void()> during) { during_register_ = std::move(during); }
  // Stops answering and frees the port, until Up.
  void Down() ABSL_LOCKS_EXCLUDED(mutex_);
  void Up();

  // Waits for a SyncNode request, past or to come, that `matches`; nothing after 20 s.
  std::optional<v1::SyncNodeRequest> WaitForSync(
      const std::function<bool(const v1::SyncNodeRequest&)>& matches) ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits until `count` Register calls have succeeded and returns the last one; nothing after 20 s.
  std::optional<v1::RegisterRequest> WaitForRegister(size_t count) ABSL_LOCKS_EXCLUDED(mutex_);
  size_t sync_count() ABSL_LOCKS_EXCLUDED(mutex_);
  size_t register_attempts() ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits until a SyncNode call is held; false after 20 s.
  bool WaitUntilHeld() ABSL_LOCKS_EXCLUDED(mutex_);

  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* context,
                                     const v1::RegisterRequest* request,
                                     v1::RegisterResponse* response) override;
  grpc::ServerUnaryReactor* SyncNode(grpc::CallbackServerContext* context,
                                     const v1::SyncNodeRequest* request,
                                     v1::SyncNodeResponse* response) override;

 private:
  struct Held {
    grpc::ServerUnaryReactor* reactor = nullptr;
    v1::SyncNodeResponse* response = nullptr;
    bool leaving = false;
  };

  // Ends the held call, if there is one, with the desired state (if it has not been seen) or
  // `status`.
  void Release(const grpc::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  grpc::ServerUnaryReactor* AnswerOrHold(grpc::CallbackServerContext* context,
                                         const v1::SyncNodeRequest* request,
                                         v1::SyncNodeResponse* response)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Credentials* const credentials_;
  const absl::Duration read_lease_;  // Constant after construction.
  std::unique_ptr<GrpcServer> server_;
  std::string address_;
  std::function<void()> during_register_ = [] {};

  absl::Mutex mutex_;
  v1::SyncNodeResponse desired_ ABSL_GUARDED_BY(mutex_);
  bool may_stop_ ABSL_GUARDED_BY(mutex_) = true;
  bool down_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<absl::Status> register_errors_ ABSL_GUARDED_BY(mutex_);
  std::vector<absl::Status> sync_errors_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::RegisterRequest> registered_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::SyncNodeRequest> syncs_ ABSL_GUARDED_BY(mutex_);
  size_t register_attempts_ ABSL_GUARDED_BY(mutex_) = 0;
  Held held_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace capstan::testing

#endif  // CAPSTAN_COMMON_NET_TESTING_FAKE_SCHEDULER_H_
