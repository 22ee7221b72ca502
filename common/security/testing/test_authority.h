// TestAuthority: certificates for the daemons and callers of a test.
//
// Thread safety: thread-compatible. It fails the test where something cannot be made.
#ifndef CAPSTAN_COMMON_SECURITY_TESTING_TEST_AUTHORITY_H_
#define CAPSTAN_COMMON_SECURITY_TESTING_TEST_AUTHORITY_H_

#include <string>

#include "absl/time/time.h"
#include "common/security/certificates/certificate_authority.h"

namespace capstan::testing {

class TestAuthority {
 public:
  explicit TestAuthority(const std::string& cluster = "test");

  // Makes a folder for TlsFolder::Read, named `name`, in the test's own folder; returns its path.
  // An older folder of that name is replaced, file by file. `age`: how long ago it was issued; its
  // lifetime is an hour.
  std::string MakeFolder(const std::string& name, PeerRole role, const std::string& peer,
                         absl::Duration age = absl::ZeroDuration()) const;
  const CertificateAuthority& authority() const { return authority_; }

 private:
  const CertificateAuthority authority_;
};

}  // namespace capstan::testing

#endif  // CAPSTAN_COMMON_SECURITY_TESTING_TEST_AUTHORITY_H_
