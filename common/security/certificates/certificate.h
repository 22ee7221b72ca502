// Certificates in PEM form: what one says, whether a key belongs to it, and whether it is valid.
//
// A certificate text may hold more than one certificate: the peer's own is the first, those of
// intermediate authorities follow. A text of authorities may hold several roots, so that an old and
// a new authority are trusted at the same time.
// Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_SECURITY_CERTIFICATES_CERTIFICATE_H_
#define CAPSTAN_COMMON_SECURITY_CERTIFICATES_CERTIFICATE_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/security/certificates/identity.h"

namespace capstan {

// The most hexadecimal digits of a serial, which are 20 bytes (RFC 5280, section 4.1.2.2).
inline constexpr size_t kSerialDigitsMax = 40;

struct CertificateFacts {
  Identity identity;
  std::string serial;  // 1 to 40 lower-case hexadecimal digits without leading zeros.
  absl::Time not_before;
  absl::Time not_after;
  // For display only: "URI:capstan://a/server/s-1, DNS:host, IP:10.0.0.1".
  std::string subject_alternative_names;
};

// Reads the first certificate of `pem`. It proves nothing: see VerifyCertificate().
// Errors: kInvalidArgument  no certificate; not exactly one capstan:// URI among the subject
//                           alternative names, or one that is no identity: the message says which
//                           names were found. A serial that a deny list could not have: it is
//                           negative or longer than kSerialDigitsMax.
absl::StatusOr<CertificateFacts> ReadCertificate(absl::string_view pem);

// Returns OK if the private key belongs to the first certificate of `certificate_pem`.
// Errors: kInvalidArgument     a text that cannot be read, or a key with a passphrase.
//         kFailedPrecondition  the key belongs to another certificate.
// No message contains anything of the key.
absl::Status KeyFits(absl::string_view certificate_pem, absl::string_view key_pem);

// Returns OK if the first certificate of `certificate_pem` leads to a root of `authorities_pem` and
// if both are valid at `now`. It must be usable by TLS clients, and that of a scheduler, server or
// worker by TLS servers, too.
// Errors: kInvalidArgument     a text that cannot be read, or a certificate without one identity.
//         kFailedPrecondition  the certificate has expired, is not valid yet, comes from another
//                              authority or is for another purpose; the message says which.
absl::Status VerifyCertificate(absl::string_view certificate_pem, absl::string_view authorities_pem,
                               absl::Time now);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_SECURITY_CERTIFICATES_CERTIFICATE_H_
