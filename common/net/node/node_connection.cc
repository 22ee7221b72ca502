#include "common/net/node/node_connection.h"

namespace capstan {

void NodeConnection::Keep(const NodeId& node, Incarnation incarnation) {
  {
    absl::MutexLock lock(&mutex_);
    if (held_ && request_.incarnation() == incarnation.value()) return;
  }
  End();
  request_.set_node_id(node);
  request_.set_incarnation(incarnation.value());
  context_ = std::make_unique<grpc::ClientContext>();
  {
    absl::MutexLock lock(&mutex_);
    held_ = true;
  }
  stub_->async()->HoldConnection(context_.get(), &request_, &response_,
                                 [this](const grpc::Status&) {
                                   absl::MutexLock lock(&mutex_);
                                   held_ = false;
                                 });
}

void NodeConnection::End() {
  if (context_ != nullptr) context_->TryCancel();
  absl::MutexLock lock(&mutex_);
  const auto over = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !held_; };
  mutex_.Await(absl::Condition(&over));
}

}  // namespace capstan
