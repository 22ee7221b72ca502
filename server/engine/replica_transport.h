// ReplicaTransport: sends a primary's messages to the servers that hold replicas; by gRPC in the
// daemon, over a simulated network in tests.
//
// Thread safety: thread-safe.
#ifndef CAPSTAN_SERVER_ENGINE_REPLICA_TRANSPORT_H_
#define CAPSTAN_SERVER_ENGINE_REPLICA_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/parameter_server.pb.h"
#include "server/store/tables/captured_shard.h"

namespace capstan::server {

// A message to a replica.
struct ReplicaRequest {
  std::shared_ptr<v1::ReplicateRequest> message;  // The transport sets its checksum.
  // The rows of the bucket that `message` installs, which `message` lacks. Null: none.
  std::shared_ptr<CapturedRows> rows;
  int64_t bytes = 0;  // Approximate size of its records, or of the shard with those rows.
};

// The result of one of several messages.
struct ReplicaOutcome {
  size_t index = 0;  // Index of the message.
  absl::Status status;
  v1::ReplicateResponse response;  // Valid if the status is OK.
};

class ReplicaTransport {
 public:
  // Reports that so many bytes of a whole shard have left. Not called after `done`.
  using Moved = std::function<void(int64_t bytes)>;
  // The response is valid if the status is OK.
  using Done = std::function<void(const absl::Status&, const v1::ReplicateResponse&)>;
  // Called for one or more messages at a time, for each of them once.
  using SomeDone = std::function<void(absl::Span<const ReplicaOutcome>)>;

  // Limits for messages that travel together, so that a slow one holds up few others.
  static constexpr size_t kTogetherMax = 1024;
  static constexpr int64_t kTogetherBytesMax = 8 << 20;  // Unless one alone is larger.

  virtual ~ReplicaTransport() = default;

  // Sends `request` to the server at `to` and calls `done` once, later, from any thread; never
  // before Send has returned. Neither function is called under a lock. Messages may be lost (then
  // `done` gets an error), doubled or overtaken.
  virtual void Send(const v1::ServerAddress& to, ReplicaRequest request, Moved moved,
                    Done done) = 0;

  // The same for several messages of one job, none with a whole shard; by default each is sent
  // alone. REQUIRES: at least one, within the bounds above.
  virtual void SendTogether(const v1::ServerAddress& to, std::vector<ReplicaRequest> requests,
                            SomeDone done) {
    for (size_t i = 0; i < requests.size(); ++i) {
      Send(
          to, std::move(requests[i]), [](int64_t) {},
          [i, done](const absl::Status& status, const v1::ReplicateResponse& response) {
            const ReplicaOutcome outcome{.index = i, .status = status, .response = response};
            done(absl::MakeConstSpan(&outcome, 1));
          });
    }
  }
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_ENGINE_REPLICA_TRANSPORT_H_
