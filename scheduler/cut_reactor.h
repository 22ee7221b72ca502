// CutReactor: answers one unary call, and hears when the call is cut before it is answered: its
// client cancelled it, or its connection broke.
//
// Thread safety: as gRPC's; `on_cut` may run on any thread, at most once, and not after OnDone.
#ifndef CAPSTAN_SCHEDULER_CUT_REACTOR_H_
#define CAPSTAN_SCHEDULER_CUT_REACTOR_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <utility>

namespace capstan::scheduler {

class CutReactor final : public grpc::ServerUnaryReactor {
 public:
  // Deletes itself once the call is done; it must be finished, also when it was cut.
  static CutReactor* New(std::function<void()> on_cut) { return new CutReactor(std::move(on_cut)); }

  void OnCancel() override { on_cut_(); }
  void OnDone() override { delete this; }

 private:
  explicit CutReactor(std::function<void()> on_cut) : on_cut_(std::move(on_cut)) {}
  ~CutReactor() override = default;

  const std::function<void()> on_cut_;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CUT_REACTOR_H_
