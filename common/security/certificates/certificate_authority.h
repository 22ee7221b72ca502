// CertificateAuthority: makes the certificates of a small cluster.
//
// It is for clusters without a public-key infrastructure of their own; daemons accept the
// certificates of any authority that they trust. Keys are ECDSA on P-256, signatures use SHA-256,
// serials are 128 random bits. A certificate begins five minutes before it is made, because the
// clocks of hosts differ. The key of the authority is on no daemon's host: it may lie on the
// operator's machine alone.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_SECURITY_CERTIFICATES_CERTIFICATE_AUTHORITY_H_
#define CAPSTAN_COMMON_SECURITY_CERTIFICATES_CERTIFICATE_AUTHORITY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/security/certificates/certificate.h"
#include "common/security/certificates/identity.h"

namespace capstan {

// Names of files in the authority's folder.
inline constexpr absl::string_view kAuthorityFile = "ca.pem";         // Public.
inline constexpr absl::string_view kAuthorityKeyFile = "ca-key.pem";  // Secret: mode 0600.

inline constexpr absl::Duration kCertificateBackdating = absl::Minutes(5);
inline constexpr absl::Duration kCertificateLifetimeMax = absl::Hours(24 * 3650);
inline constexpr int kHostsPerCertificateMax = 100;

struct IssuedCertificate {
  std::string certificate_pem;
  std::string key_pem;  // Secret: PKCS #8 without a passphrase.
  CertificateFacts facts;
};

class CertificateAuthority {
 public:
  // Makes the authority of a cluster with a new key. Nothing is written to disk.
  // Errors: kInvalidArgument  the cluster's name (CheckIdentityName), or a lifetime outside
  //                           (0, kCertificateLifetimeMax].
  //         kInternal         OpenSSL refuses; the message says what.
  static absl::StatusOr<CertificateAuthority> Create(const std::string& cluster,
                                                     absl::Duration lifetime, absl::Time now);

  // Reads kAuthorityFile and kAuthorityKeyFile.
  // Errors: kNotFound            a file is missing.
  //         kFailedPrecondition  others can read the key (ReadSecurityFile), or it belongs to
  //                              another certificate.
  //         kInvalidArgument     a file that cannot be read as PEM, or no authority made here.
  static absl::StatusOr<CertificateAuthority> Load(const std::string& folder);

  // Makes a key and a certificate for `identity`, which TLS clients and servers may use.
  //   hosts  host names and IP addresses of the peer, for tools that check them; may be empty.
  // Errors: kInvalidArgument     the identity (CheckIdentity), another cluster, a host that is
  //                              neither a name nor an address, too many hosts, or a lifetime
  //                              outside (0, kCertificateLifetimeMax].
  //         kFailedPrecondition  the certificate would outlive the authority.
  //         kInternal            OpenSSL refuses; the message says what.
  absl::StatusOr<IssuedCertificate> Issue(const Identity& identity,
                                          const std::vector<std::string>& hosts,
                                          absl::Duration lifetime, absl::Time now) const;

  const std::string& cluster() const { return cluster_; }
  absl::Time not_after() const { return not_after_; }
  const std::string& certificate_pem() const { return certificate_pem_; }
  const std::string& key_pem() const { return key_pem_; }  // Secret.

 private:
  CertificateAuthority() = default;

  std::string cluster_;
  absl::Time not_after_;
  std::string certificate_pem_;
  std::string key_pem_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_SECURITY_CERTIFICATES_CERTIFICATE_AUTHORITY_H_
