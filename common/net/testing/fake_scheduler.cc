#include "common/net/testing/fake_scheduler.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "common/net/grpc_types/grpc_status.h"

namespace capstan::testing {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(20);

grpc::ServerUnaryReactor* Finished(grpc::CallbackServerContext* context,
                                   const grpc::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

// Removes and returns the first error of the list; ok if it is empty.
absl::Status TakeError(std::vector<absl::Status>* errors) {
  if (errors->empty()) return absl::OkStatus();
  const absl::Status error = errors->front();
  errors->erase(errors->begin());
  return error;
}

}  // namespace

FakeScheduler::FakeScheduler(absl::Duration read_lease, const Credentials* credentials)
    : credentials_(credentials), read_lease_(read_lease), address_("127.0.0.1:0") {
  Up();
}

FakeScheduler::~FakeScheduler() { Down(); }

void FakeScheduler::Up() {
  auto server =
      GrpcServer::Start({.listen = address_, .services = {this}, .credentials = credentials_});
  if (!server.ok()) {
    std::fprintf(stderr, "FakeScheduler: %s\n", server.status().ToString().c_str());
    std::abort();
  }
  server_ = *std::move(server);
  address_ = server_->address();
  absl::MutexLock lock(&mutex_);
  down_ = false;
}

void FakeScheduler::Down() {
  if (server_ == nullptr) return;
  {
    absl::MutexLock lock(&mutex_);
    down_ = true;  // Nothing is held any more: the shutdown waits for all calls.
  }
  Release(grpc::Status(grpc::StatusCode::UNAVAILABLE, "going down"));
  server_->Shutdown(absl::ZeroDuration());
  server_.reset();
}

void FakeScheduler::SetDesired(v1::SyncNodeResponse desired) {
  {
    absl::MutexLock lock(&mutex_);
    desired.set_generation(desired_.generation() + 1);
    desired_ = std::move(desired);
  }
  Release(grpc::Status::OK);
}

void FakeScheduler::SetMayStop(bool may_stop) {
  {
    absl::MutexLock lock(&mutex_);
    may_stop_ = may_stop;
  }
  Release(grpc::Status::OK);
}

void FakeScheduler::FailRegister(std::vector<absl::Status> errors) {
  absl::MutexLock lock(&mutex_);
  register_errors_ = std::move(errors);
}

void FakeScheduler::FailSync(std::vector<absl::Status> errors) {
  absl::Status first;
  {
    absl::MutexLock lock(&mutex_);
    sync_errors_ = std::move(errors);
    if (held_.reactor == nullptr) return;
    first = TakeError(&sync_errors_);
  }
  Release(ToGrpcStatus(first));
}

void FakeScheduler::Release(const grpc::Status& status) {
  Held held;
  {
    absl::MutexLock lock(&mutex_);
    held = std::exchange(held_, {});
    if (held.reactor == nullptr) return;
    *held.response = desired_;
    held.response->set_may_stop(held.leaving && may_stop_);
  }
  held.reactor->Finish(status);
}

std::optional<v1::SyncNodeRequest> FakeScheduler::WaitForSync(
    const std::function<bool(const v1::SyncNodeRequest&)>& matches) {
  absl::MutexLock lock(&mutex_);
  std::optional<v1::SyncNodeRequest> found;
  const auto look = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    for (const v1::SyncNodeRequest& request : syncs_) {
      if (!matches(request)) continue;
      found = request;
      return true;
    }
    return false;
  };
  mutex_.AwaitWithTimeout(absl::Condition(&look), kPatience);
  return found;
}

std::optional<v1::RegisterRequest> FakeScheduler::WaitForRegister(size_t count) {
  absl::MutexLock lock(&mutex_);
  const auto enough = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return registered_.size() >= count;
  };
  if (!mutex_.AwaitWithTimeout(absl::Condition(&enough), kPatience)) return std::nullopt;
  return registered_.back();
}

size_t FakeScheduler::sync_count() {
  absl::MutexLock lock(&mutex_);
  return syncs_.size();
}

size_t FakeScheduler::register_attempts() {
  absl::MutexLock lock(&mutex_);
  return register_attempts_;
}

bool FakeScheduler::WaitUntilHeld() {
  absl::MutexLock lock(&mutex_);
  const auto held = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return held_.reactor != nullptr; };
  return mutex_.AwaitWithTimeout(absl::Condition(&held), kPatience);
}

grpc::ServerUnaryReactor* FakeScheduler::Register(grpc::CallbackServerContext* context,
                                                  const v1::RegisterRequest* request,
                                                  v1::RegisterResponse* response) {
  during_register_();
  absl::MutexLock lock(&mutex_);
  ++register_attempts_;
  const absl::Status error = TakeError(&register_errors_);
  if (!error.ok()) return Finished(context, ToGrpcStatus(error));
  registered_.push_back(*request);
  response->set_node_id(request->name().empty() ? "node-1" : request->name());
  response->set_incarnation(registered_.size());
  response->set_lease_ms(30'000);
  response->set_sync_interval_ms(10'000);
  response->set_read_lease_ms(absl::ToInt64Milliseconds(read_lease_));
  response->set_protocol_version(v1::PROTOCOL_VERSION_CURRENT);
  return Finished(context, grpc::Status::OK);
}

grpc::ServerUnaryReactor* FakeScheduler::SyncNode(grpc::CallbackServerContext* context,
                                                  const v1::SyncNodeRequest* request,
                                                  v1::SyncNodeResponse* response) {
  Held superseded;
  grpc::ServerUnaryReactor* reactor = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    superseded = std::exchange(held_, {});
    reactor = AnswerOrHold(context, request, response);
  }
  if (superseded.reactor != nullptr) {
    superseded.reactor->Finish(
        grpc::Status(grpc::StatusCode::CANCELLED, "superseded by a newer call"));
  }
  return reactor;
}

grpc::ServerUnaryReactor* FakeScheduler::AnswerOrHold(grpc::CallbackServerContext* context,
                                                      const v1::SyncNodeRequest* request,
                                                      v1::SyncNodeResponse* response) {
  syncs_.push_back(*request);
  if (down_) {
    return Finished(context, grpc::Status(grpc::StatusCode::UNAVAILABLE, "going down"));
  }
  const absl::Status error = TakeError(&sync_errors_);
  if (!error.ok()) return Finished(context, ToGrpcStatus(error));
  if (request->incarnation() != registered_.size()) {
    return Finished(context, grpc::Status(grpc::StatusCode::ABORTED, "an old incarnation"));
  }
  const bool may_stop = request->leaving() && may_stop_;
  if (may_stop || request->generation_seen() != desired_.generation()) {
    *response = desired_;
    response->set_may_stop(may_stop);
    return Finished(context, grpc::Status::OK);
  }
  held_ = {context->DefaultReactor(), response, request->leaving()};
  return held_.reactor;
}

}  // namespace capstan::testing
