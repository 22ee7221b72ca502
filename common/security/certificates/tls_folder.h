// TlsFolder: the certificate, key and trusted authorities of one process, checked as a whole.
//
//   FOLDER/ca.pem      the authorities that this process trusts
//          cert.pem    its own certificate, and those of intermediate authorities
//          key.pem     its private key: mode 0600 or 0400, owner this user or root
//          denied.txt  certificates to refuse (optional; see deny_list.h)
//
// FOLDER may be a symbolic link that is swapped while daemons run: all files are read from the
// folder that was there first. If the files themselves are swapped one by one, a mixture of old and
// new ones is refused, because the key does not fit; reading again later succeeds.
// Thread safety: a value.
#ifndef CAPSTAN_COMMON_SECURITY_CERTIFICATES_TLS_FOLDER_H_
#define CAPSTAN_COMMON_SECURITY_CERTIFICATES_TLS_FOLDER_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/security/certificates/certificate.h"

namespace capstan {

inline constexpr absl::string_view kTrustedFile = "ca.pem";
inline constexpr absl::string_view kCertificateFile = "cert.pem";
inline constexpr absl::string_view kKeyFile = "key.pem";

struct TlsFolder {
  std::string path;             // The folder as the caller named it.
  std::string authorities_pem;  // Content of ca.pem.
  std::string certificate_pem;  // Content of cert.pem.
  std::string key_pem;          // Content of key.pem. Secret.
  CertificateFacts facts;       // Facts of the first certificate in cert.pem.

  // Reads and checks the folder: `now` lies between the certificate's not_before and not_after.
  // Errors: each names the file, what was expected and, where a command mends it, the command.
  //   kNotFound            the folder or a file is missing.
  //   kFailedPrecondition  the key can be read by others, belongs to someone else or does not fit;
  //                        the certificate is not valid now, or comes from another authority.
  //   kInvalidArgument     a file that is not PEM, or a certificate without exactly one identity.
  //   kPermissionDenied, kResourceExhausted, kUnavailable, kDataLoss  a file cannot be read.
  static absl::StatusOr<TlsFolder> Read(const std::string& path, absl::Time now);

  // Returns the path of denied.txt, for a DenyList.
  std::string DeniedPath() const;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_SECURITY_CERTIFICATES_TLS_FOLDER_H_
