#include "worker/client/transport/shared_memory_connection.h"

#include <grpcpp/support/client_callback.h>

#include <array>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/grpc_types/capability_metadata.h"
#include "common/net/grpc_types/grpc_status.h"
#include "common/observability/log.h"
#include "common/shared_memory/range_allocator.h"

namespace capstan::worker {
namespace {

constexpr absl::Duration kOfferInterval = absl::Seconds(1);

// True if the server would answer another offer in the same way.
bool IsForGood(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnimplemented:
      return true;
    default:
      return false;
  }
}

}  // namespace

// One memfd and the stream that keeps it open at the server. It owns itself until OnDone.
class SharedMemoryConnection::Segment final
    : public grpc::ClientReadReactor<v1::ShareMemoryResponse>,
      public std::enable_shared_from_this<Segment> {
 public:
  Segment(SharedMemoryConnection* connection, std::shared_ptr<SharedSegment> memory)
      : connection_(connection),
        memory_(std::move(memory)),
        free_{RangeAllocator(memory_->size() / 2), RangeAllocator(memory_->size() / 2)} {
    const SegmentOffer offer = memory_->offer();
    request_.set_process(offer.process);
    request_.set_file_descriptor(offer.descriptor);
    request_.set_bytes(offer.bytes);
    request_.set_challenge(offer.challenge);
  }

  void Start(v1::ParameterServer::Stub& stub, const std::string& capability) {
    AddCapability(capability, &context_);
    self_ = shared_from_this();
    stub.async()->ShareMemory(&context_, &request_, this);
    StartRead(&response_);
    StartCall();
  }
  // Leases no more room. The stream ends with the last lease, so that messages that are on their
  // way still find their values.
  void End() {
    bool last;
    {
      absl::MutexLock lock(&mutex_);
      open_ = false;
      ending_ = true;
      last = leases_ == 0;
    }
    if (last) context_.TryCancel();
  }

  // The first read brings the proof; the second one ends with the stream.
  void OnReadDone(bool ok) override {
    if (!ok) return;
    refusal_ = Open();
    if (!refusal_.ok()) return End();
    connection_->OnOpen(*this);
    StartRead(&response_);
  }
  void OnDone(const grpc::Status& status) override {
    {
      absl::MutexLock lock(&mutex_);
      open_ = false;
    }
    connection_->OnDone(*this, refusal_.ok() ? FromGrpcStatus(status) : refusal_);
    self_.reset();
  }

  std::optional<MessageRoom> Take(Direction direction, int64_t bytes) {
    absl::MutexLock lock(&mutex_);
    if (!open_) return std::nullopt;
    const std::optional<int64_t> offset = FreeOf(direction).Take(bytes);
    if (!offset.has_value()) return std::nullopt;
    ++leases_;
    return MessageRoom{
        .segment = memory_, .name = name_, .offset = BaseOf(direction) + *offset, .bytes = bytes};
  }
  void Give(Direction direction, int64_t offset) {
    bool last;
    {
      absl::MutexLock lock(&mutex_);
      FreeOf(direction).Give(offset - BaseOf(direction));
      last = --leases_ == 0 && ending_;
    }
    if (last) context_.TryCancel();
  }
  bool MustWait(Direction direction, int64_t bytes) {
    absl::MutexLock lock(&mutex_);
    const RangeAllocator& free = FreeOf(direction);
    return open_ && bytes <= free.size() && !free.Fits(bytes);
  }
  int64_t size() const { return memory_->size(); }

 private:
  absl::Status Open() {
    if (response_.proof() != memory_->proof()) {
      return absl::NotFoundError("shared memory: the server has opened something else");
    }
    if (const absl::Status allocated = memory_->Allocate(); !allocated.ok()) return allocated;
    absl::MutexLock lock(&mutex_);
    name_ = response_.segment();
    open_ = true;
    return absl::OkStatus();
  }
  RangeAllocator& FreeOf(Direction direction) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return free_[static_cast<size_t>(direction)];
  }
  int64_t BaseOf(Direction direction) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return direction == Direction::kPush ? 0 : FreeOf(direction).size();
  }

  SharedMemoryConnection* const connection_;
  const std::shared_ptr<SharedSegment> memory_;  // Shared with the values of messages.
  std::shared_ptr<Segment> self_;
  grpc::ClientContext context_;  // It has no deadline: the stream lasts as long as both sides.
  v1::ShareMemoryRequest request_;
  v1::ShareMemoryResponse response_;
  absl::Status refusal_;  // Why this side ended the stream; only the reactor's methods use it.

  absl::Mutex mutex_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  int leases_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t name_ ABSL_GUARDED_BY(mutex_) = 0;
  std::array<RangeAllocator, 2> free_ ABSL_GUARDED_BY(mutex_);  // Indexed by direction.
};

SharedMemoryConnection::Lease::Lease(Lease&& other) noexcept { *this = std::move(other); }

SharedMemoryConnection::Lease& SharedMemoryConnection::Lease::operator=(Lease&& other) noexcept {
  if (this == &other) return *this;
  GiveBack();
  segment_ = std::move(other.segment_);
  direction_ = other.direction_;
  room_ = std::move(other.room_);
  other.segment_.reset();
  other.room_ = {};
  return *this;
}

void SharedMemoryConnection::Lease::GiveBack() {
  if (segment_ != nullptr) segment_->Give(direction_, room_.offset);
  segment_.reset();
  room_ = {};
}

void SharedMemoryConnection::Lease::Abandon() {
  if (segment_ != nullptr) segment_->End();
  GiveBack();  // An ending segment leases nothing again.
}

SharedMemoryConnection::SharedMemoryConnection(Options options) : options_(std::move(options)) {}

void SharedMemoryConnection::Close() {
  SetSize(0);
  tracker_.WaitUntilGone();  // A cancelled stream ends at once.
}

void SharedMemoryConnection::SetSize(int64_t bytes) {
  std::shared_ptr<Segment> ended;
  {
    absl::MutexLock lock(&mutex_);
    size_ = bytes;
    if (segment_ != nullptr && (bytes == 0 || segment_->size() < bytes / 2)) {
      ended = std::move(segment_);
    }
  }
  if (ended != nullptr) ended->End();
}

bool SharedMemoryConnection::WantsOffer(Instant now) const {
  absl::MutexLock lock(&mutex_);
  return size_ > 0 && !refused_ && segment_ == nullptr && now >= next_offer_;
}

void SharedMemoryConnection::Offer(Instant now) {
  std::shared_ptr<Segment> segment;
  {
    absl::MutexLock lock(&mutex_);
    if (size_ == 0 || refused_ || segment_ != nullptr) return;
    next_offer_ = now + kOfferInterval;
    auto memory = SharedSegment::Create(size_);
    if (!memory.ok()) {
      refused_ = true;
      LogWarning({}, "no memory is shared with {}: {}", options_.server,
                 std::string(memory.status().message()));
      return;
    }
    segment = segment_ = tracker_.Make<Segment>(this, *std::move(memory));
  }
  segment->Start(*options_.stub,
                 options_.capability == nullptr ? std::string() : options_.capability());
}

std::shared_ptr<SharedMemoryConnection::Segment> SharedMemoryConnection::Current() const {
  absl::MutexLock lock(&mutex_);
  return segment_;
}

SharedMemoryConnection::Lease SharedMemoryConnection::Take(Direction direction, int64_t bytes) {
  Lease lease;
  const std::shared_ptr<Segment> segment = Current();
  if (segment == nullptr || bytes <= 0) return lease;
  std::optional<MessageRoom> room = segment->Take(direction, bytes);
  if (!room.has_value()) return lease;
  lease.segment_ = segment;
  lease.direction_ = direction;
  lease.room_ = *std::move(room);
  return lease;
}

bool SharedMemoryConnection::MustWait(Direction direction, int64_t bytes) const {
  const std::shared_ptr<Segment> segment = Current();
  return segment != nullptr && segment->MustWait(direction, bytes);
}

void SharedMemoryConnection::OnOpen(const Segment& segment) {
  LogInfo({}, "shares {} KiB of memory with {}", segment.size() >> 10, options_.server);
  options_.on_change();
}

void SharedMemoryConnection::OnDone(const Segment& segment, const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    if (segment_.get() == &segment) segment_.reset();
    if (IsForGood(status)) {
      refused_ = true;
      LogInfo({}, "no memory is shared with {}: {}", options_.server, status.ToString());
    }
  }
  options_.on_change();
}

}  // namespace capstan::worker
