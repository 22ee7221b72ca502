#include "common/net/socket/host_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace capstan {
namespace {

constexpr int kPortMax = 65535;

absl::Status Malformed(const std::string& text) {
  return absl::InvalidArgumentError(
      absl::StrCat("address \"", absl::CHexEscape(text),
                   "\": expected host:port with a port of 0 to 65535, such as ",
                   "127.0.0.1:7070 or [::1]:7070"));
}

bool IsPort(const std::string& digits, int* port) {
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos) return false;
  return absl::SimpleAtoi(digits, port) && *port <= kPortMax;
}

bool IsOfHost(char c) {
  return !absl::ascii_iscntrl(static_cast<unsigned char>(c)) &&
         absl::string_view("[]/ ").find(c) == absl::string_view::npos;
}

}  // namespace

absl::StatusOr<HostPort> ParseHostPort(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return Malformed(text);
  HostPort address;
  if (!IsPort(text.substr(colon + 1), &address.port)) return Malformed(text);
  address.host = text.substr(0, colon);
  if (address.host.front() == '[') {
    if (address.host.size() < 3 || address.host.back() != ']') return Malformed(text);
    address.host = address.host.substr(1, address.host.size() - 2);
  } else if (address.host.find(':') != std::string::npos) {
    return Malformed(text);  // An IPv6 host without brackets is ambiguous.
  }
  if (!std::all_of(address.host.begin(), address.host.end(), IsOfHost)) return Malformed(text);
  return address;
}

std::string FormatHostPort(const HostPort& address) {
  if (address.host.find(':') == std::string::npos) {
    return absl::StrCat(address.host, ":", address.port);
  }
  return absl::StrCat("[", address.host, "]:", address.port);
}

HostPort AdvertisedAddress(HostPort listener, const std::string& hostname) {
  if (listener.host == "0.0.0.0" || listener.host == "::") listener.host = hostname;
  return listener;
}

bool IsLoopback(const std::string& host) {
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == IN_LOOPBACKNET;
  in6_addr v6{};
  if (inet_pton(AF_INET6, host.c_str(), &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6);
  return host == "localhost";
}

std::string LocalHostname() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

}  // namespace capstan
