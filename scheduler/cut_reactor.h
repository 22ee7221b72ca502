// CutReactor: a gRPC reactor for one unary call that calls `on_cut` if the call ends before it is
// answered: the client cancelled it, or the connection broke.
//
// Thread safety: as gRPC's reactors. `on_cut` runs on any thread, at most once, before OnDone.
#ifndef CAPSTAN_SCHEDULER_CUT_REACTOR_H_
#define CAPSTAN_SCHEDULER_CUT_REACTOR_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <utility>

namespace capstan::scheduler {

class CutReactor final : public grpc::ServerUnaryReactor {
 public:
  // The reactor deletes itself when the call is done. The caller must finish every call, including
  // one that was cut.
  static CutReactor* New(std::function<void()> on_cut) { return new CutReactor(std::move(on_cut)); }

  void OnCancel() override {
    on_cut_();
    cut_.store(true, std::memory_order_release);
  }
  // gRPC orders OnCancel before OnDone by an internal count that ThreadSanitizer does not see, so
  // `cut_` makes that order visible.
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
