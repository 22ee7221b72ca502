// Settings that both ends of a gRPC connection have.
#ifndef CAPSTAN_COMMON_NET_GRPC_CONNECTION_SETTINGS_H_
#define CAPSTAN_COMMON_NET_GRPC_CONNECTION_SETTINGS_H_

namespace capstan {

// A peer that answers no ping for 10 s + 5 s is taken as gone: by a client while calls are in
// flight, by a server in any case.
inline constexpr int kKeepaliveTimeMs = 10'000;
inline constexpr int kKeepaliveTimeoutMs = 5000;
// Large frames and a deep look-ahead were the fastest of the settings tried over loopback at 4 MiB
// messages.
inline constexpr int kFrameBytes = 16'777'215;
inline constexpr int kLookaheadBytes = 16 << 20;
inline constexpr int kReadChunkBytes = 256 << 10;

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_GRPC_CONNECTION_SETTINGS_H_
