#include "server/rpc/segment_streams.h"

#include <atomic>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/net/grpc_types/grpc_status.h"

namespace capstan::server {

// A stream that sends one response and then nothing until either side ends it. It owns itself until
// OnDone.
class SegmentStreams::Stream final : public Reactor, public std::enable_shared_from_this<Stream> {
 public:
  explicit Stream(SegmentStreams* streams) : streams_(streams) {}

  void Begin(absl::StatusOr<v1::ShareMemoryResponse> opened) {
    self_ = shared_from_this();
    if (!opened.ok()) return End(opened.status());
    response_ = *std::move(opened);
    StartWrite(&response_);
  }
  void End(const absl::Status& status) {
    if (!ended_.exchange(true)) Finish(ToGrpcStatus(status));
  }

  void OnCancel() override { End(absl::CancelledError("the caller is gone")); }
  void OnWriteDone(bool ok) override {
    if (!ok) OnCancel();
  }
  void OnDone() override {
    streams_->segments_->Close(response_.segment());
    streams_->Forget(self_);
    self_.reset();
  }

 private:
  SegmentStreams* const streams_;
  std::shared_ptr<Stream> self_;
  v1::ShareMemoryResponse response_;
  std::atomic<bool> ended_ = false;
};

SegmentStreams::Reactor* SegmentStreams::Open(const v1::ShareMemoryRequest& request,
                                              absl::StatusOr<std::optional<SegmentOwner>> owner) {
  auto stream = std::make_shared<Stream>(this);
  bool closed = false;
  {
    absl::MutexLock lock(&mutex_);
    closed = closed_;
    if (!closed) streams_.insert(stream);
  }
  if (closed) {
    stream->Begin(absl::UnavailableError("shared memory: this server stops"));
  } else if (!owner.ok()) {
    stream->Begin(owner.status());
  } else {
    stream->Begin(segments_->Open(request, *std::move(owner)));
  }
  return stream.get();
}

void SegmentStreams::Close() {
  absl::flat_hash_set<std::shared_ptr<Stream>> streams;
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    streams = streams_;
  }
  for (const auto& stream : streams) stream->End(absl::UnavailableError("this server stops"));
}

void SegmentStreams::Forget(const std::shared_ptr<Stream>& stream) {
  absl::MutexLock lock(&mutex_);
  streams_.erase(stream);
}

}  // namespace capstan::server
