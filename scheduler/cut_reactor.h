// CutReactor: answers one unary call, and hears when the call is cut before it is answered: its
// client cancelled it, or its connection broke.
//
// Thread safety: as gRPC's; `on_cut` may run on any thread, at most once, and not after OnDone.
#ifndef CAPSTAN_SCHEDULER_CUT_REACTOR_H_
#define CAPSTAN_SCHEDULER_CUT_REACTOR_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <utility>

namespace capstan::scheduler {

class CutReactor final : public grpc::ServerUnaryReactor {
 public:
  // Deletes itself once the call is done; it must be finished, also when it was cut.
  static CutReactor* New(std::function<void()> on_cut) { return new CutReactor(std::move(on_cut)); }

  void OnCancel() override {
    on_cut_();
    cut_.store(true, std::memory_order_release);
  }
  // gRPC orders the two by a count of its own, out of ThreadSanitizer's sight.
  void OnDone() override {
    cut_.load(std::memory_order_acquire);
    delete this;
  }

 private:
  explicit CutReactor(std::function<void()> on_cut) : on_cut_(std::move(on_cut)) {}
  ~CutReactor() override = default;

  const std::function<void()> on_cut_;
  std::atomic<bool> cut_ = false;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CUT_REACTOR_H_
