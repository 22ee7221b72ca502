#include "common/net/frame/data_connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "common/status/status_macros.h"

namespace capstan {
namespace {

// The thread in Run looks again after this pause while too much is queued and another thread
// writes, which does not wake it.
constexpr absl::Duration kWriterPause = absl::Milliseconds(1);

}  // namespace

DataConnection::DataConnection(std::unique_ptr<SocketStream> stream, int64_t queued_bytes_max,
                               const Clock* clock)
    : stream_(std::move(stream)),
      queued_bytes_max_(queued_bytes_max),
      clock_(clock),
      writer_(stream_.get()),
      reader_(/*sums=*/!stream_->detects_damage()) {}

void DataConnection::Send(const FrameHead& head, absl::Cord payload, absl::Duration patience) {
  // The thread in Run looks for stalled frames before it sleeps, but it may be asleep already.
  if (writer_.Send(head, std::move(payload), patience)) wake_up_.Wake();
}

void DataConnection::Leave(const FrameHead& head, absl::Cord payload) {
  if (writer_.Leave(head, std::move(payload))) wake_up_.Wake();
}

void DataConnection::Wake() { wake_up_.Wake(); }

void DataConnection::Close() {
  closed_ = true;
  shutdown(stream_->socket(), SHUT_RDWR);
  wake_up_.Wake();
}

absl::Status DataConnection::Run(Handler* handler) {
  const absl::Status status = Loop(handler);
  closed_ = true;
  shutdown(stream_->socket(), SHUT_RDWR);
  writer_.Close();
  return status;
}

absl::Status DataConnection::Loop(Handler* handler) {
  for (;;) {
    if (closed_) return absl::UnavailableError("the connection was closed here");
    CAPSTAN_RETURN_IF_ERROR(writer_.error());
    if (writer_.stalled()) writer_.Flush();
    size_t received = 0;
    if (MayRead()) {
      CAPSTAN_RETURN_IF_ERROR(HandleFrames(handler));
      if (MayRead()) {
        CAPSTAN_ASSIGN_OR_RETURN(received, reader_.Receive(*stream_));
      }
    }
    received_bytes_ += static_cast<int64_t>(received);
    if (received == 0 || wake_up_.woken()) {
      CAPSTAN_RETURN_IF_ERROR(WaitForMore(handler, /*wait=*/received == 0));
    }
  }
}

absl::Status DataConnection::HandleFrames(Handler* handler) {
  const FrameReader::PlacesOf places_of = [handler](const FrameHead& head) {
    return handler->PlacesOf(head);
  };
  while (!closed_ && MayRead()) {
    CAPSTAN_ASSIGN_OR_RETURN(std::optional<FrameReader::Frame> frame, reader_.Next(places_of));
    if (!frame.has_value()) return absl::OkStatus();
    CAPSTAN_RETURN_IF_ERROR(handler->OnFrame(frame->head, std::move(frame->payload)));
  }
  return absl::OkStatus();
}

absl::Status DataConnection::WaitForMore(Handler* handler, bool wait) {
  Instant next = Instant::InfiniteFuture();
  const Instant now = clock_->Now();
  CAPSTAN_RETURN_IF_ERROR(handler->OnTick(now, received_bytes_ + writer_.sent_bytes(), &next));
  const bool stalled = writer_.stalled();
  if (!MayRead() && !stalled) next = std::min(next, now + kWriterPause);
  pollfd files[] = {{.fd = stream_->socket(), .events = 0, .revents = 0},
                    {.fd = wake_up_.descriptor(), .events = POLLIN, .revents = 0}};
  if (MayRead()) files[0].events |= POLLIN;
  if (stalled) files[0].events |= POLLOUT;
  poll(files, 2, wait ? PollMillis(next, now) : 0);
  wake_up_.Clear(/*readable=*/files[1].revents != 0);
  return absl::OkStatus();
}

}  // namespace capstan
