// HostPort: "host:port" as people write it in flags; IPv6 hosts stand in brackets.
//
// Thread safety: values.
#ifndef CAPSTAN_COMMON_NET_SOCKET_HOST_PORT_H_
#define CAPSTAN_COMMON_NET_SOCKET_HOST_PORT_H_

#include <string>

#include "absl/status/statusor.h"

namespace capstan {

struct HostPort {
  std::string host;  // The host without brackets. It has no control character, '/' or ' '.
  int port = 0;      // 0 to 65535.
};

// Errors: kInvalidArgument  no host, no port, or a port out of range; names the text, escaped.
absl::StatusOr<HostPort> ParseHostPort(const std::string& text);

// The inverse of ParseHostPort.
std::string FormatHostPort(const HostPort& address);

// The address at which other hosts reach a listener: a wildcard host (0.0.0.0, ::) is replaced by
// `hostname`, any other stays.
HostPort AdvertisedAddress(HostPort listener, const std::string& hostname);

// True if only processes of this machine reach a listener of `host`: localhost, 127.0.0.0/8, ::1.
bool IsLoopback(const std::string& host);

// This machine's name; "localhost" if it has none.
std::string LocalHostname();

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_SOCKET_HOST_PORT_H_
