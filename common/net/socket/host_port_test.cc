#include "common/net/socket/host_port.h"

#include <catch2/catch.hpp>

#include "common/testing/status_matchers.h"

namespace capstan::host_port_test {
namespace {

TEST_CASE("HostPort: names, IPv4 and bracketed IPv6 parse and print back", "[net]") {
  for (const std::string text : {"localhost:0", "10.0.0.1:65535", "[::1]:7070", "node-3.lan:80"}) {
    CAPTURE(text);
    REQUIRE_OK_AND_ASSIGN(const HostPort address, ParseHostPort(text));
    CHECK(FormatHostPort(address) == text);
  }
  REQUIRE_OK_AND_ASSIGN(const HostPort six, ParseHostPort("[::1]:7070"));
  CHECK(six.host == "::1");
  CHECK(six.port == 7070);
}

TEST_CASE("HostPort: what is not host:port is refused with the text", "[net]") {
  for (const std::string text :
       {"", ":", ":80", "host", "host:", "host:65536", "host:-1", "host:+1", "host:8x", "::1:80",
        "[::1:80", "[]:80", "a b:80", "http://a:80", "host:99999999999999999999"}) {
    CAPTURE(text);
    CHECK_STATUS(ParseHostPort(text), absl::StatusCode::kInvalidArgument, "\"" + text + "\"");
  }
}

TEST_CASE("HostPort: control characters are refused, and escaped in the message", "[net]") {
  CHECK_STATUS(ParseHostPort(std::string("127.0.0.1\0b:80", 14)),
               absl::StatusCode::kInvalidArgument, "\"127.0.0.1\\x00\\x62:80\"");
  CHECK_STATUS(ParseHostPort("a\nb:80"), absl::StatusCode::kInvalidArgument, "\"a\\nb:80\"");
}

TEST_CASE("HostPort: a wildcard listener is advertised by the host's name", "[net]") {
  CHECK(FormatHostPort(AdvertisedAddress({"0.0.0.0", 7070}, "node-3")) == "node-3:7070");
  CHECK(FormatHostPort(AdvertisedAddress({"::", 7070}, "node-3")) == "node-3:7070");
  CHECK(FormatHostPort(AdvertisedAddress({"127.0.0.1", 7070}, "node-3")) == "127.0.0.1:7070");
  CHECK_FALSE(LocalHostname().empty());
}

}  // namespace
}  // namespace capstan::host_port_test
