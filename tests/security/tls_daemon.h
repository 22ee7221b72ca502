// TlsDaemon: the real program of a daemon with a certificate, for a test that calls it.
//
// Thread safety: thread-compatible. It fails the test where something does not work.
#ifndef CAPSTAN_TESTS_SECURITY_TLS_DAEMON_H_
#define CAPSTAN_TESTS_SECURITY_TLS_DAEMON_H_

#include <memory>
#include <string>
#include <vector>

#include "common/net/grpc/channel.h"
#include "common/process/subprocess/subprocess.h"
#include "common/security/testing/test_authority.h"

namespace capstan::testing {

class TlsDaemon {
 public:
  struct Options {
    PeerRole role = PeerRole::kScheduler;  // This role's program is run.
    std::string name = {};                 // In its certificate, and so the node's.
    std::string scheduler = {};            // host:port; of a node.
    std::vector<std::string> flags = {};
    std::string more_authorities = {};  // PEM. It trusts them beside its own.
  };
  // Returns once it listens, on a port of 127.0.0.1. Its folder of state and its log are files of
  // the test (TestPath) with its name in front.
  TlsDaemon(const TestAuthority& authority, const Options& options);

  const std::string& address() const { return address_; }  // host:port.
  const std::string& tls_folder() const { return folder_; }
  const ExpectedPeer& peer() const { return peer_; }

 private:
  const std::string folder_;
  const ExpectedPeer peer_;
  std::unique_ptr<Subprocess> process_;
  std::string address_;
};

}  // namespace capstan::testing

#endif  // CAPSTAN_TESTS_SECURITY_TLS_DAEMON_H_
