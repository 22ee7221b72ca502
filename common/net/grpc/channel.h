// Channels: a client's gRPC connections to daemons; limits and keepalive in one place.
//
// Thread safety: functions without state.
#ifndef CAPSTAN_COMMON_NET_GRPC_CHANNEL_H_
#define CAPSTAN_COMMON_NET_GRPC_CHANNEL_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/net/grpc/credentials.h"

namespace capstan {

enum class ChannelKind { kControl, kData };  // Kinds never share a connection.

// Connects lazily and reconnects with a backoff of 100 ms to 1 s. Each data channel has its own
// connection; control channels to one address share one. Without credentials it is plain text; with
// them it connects to nobody but `peer`.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, ChannelKind kind,
                                           const Credentials* credentials = nullptr,
                                           const ExpectedPeer& peer = {});

// Every call has a deadline: sets it on `context`, measured from now.
void SetDeadline(grpc::ClientContext& context, absl::Duration timeout);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_GRPC_CHANNEL_H_
