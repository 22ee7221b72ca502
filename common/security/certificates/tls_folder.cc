#include "common/security/certificates/tls_folder.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/security/certificates/deny_list.h"
#include "common/security/certificates/security_file.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/storage/files/descriptor.h"

namespace capstan {

absl::StatusOr<TlsFolder> TlsFolder::Read(const std::string& path, absl::Time now) {
  const Descriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.ok()) {
    const std::string text =
        absl::StrCat(path, ": ", std::strerror(errno),
                     "; expected a folder of certificates: capstan cert node --help");
    return errno == EACCES ? absl::PermissionDeniedError(text) : absl::NotFoundError(text);
  }
  const auto read = [&](absl::string_view name, Secrecy secrecy) {
    return ReadSecurityFile(folder.get(), std::string(name), absl::StrCat(path, "/", name),
                            secrecy);
  };
  TlsFolder files{.path = path};
  CAPSTAN_ASSIGN_OR_RETURN(files.authorities_pem, read(kTrustedFile, Secrecy::kPublic));
  CAPSTAN_ASSIGN_OR_RETURN(files.certificate_pem, read(kCertificateFile, Secrecy::kPublic));
  CAPSTAN_ASSIGN_OR_RETURN(files.key_pem, read(kKeyFile, Secrecy::kSecret));
  const std::string certificate = absl::StrCat(path, "/", kCertificateFile);
  absl::StatusOr<CertificateFacts> facts = ReadCertificate(files.certificate_pem);
  if (!facts.ok()) return Annotate(facts.status(), certificate);
  files.facts = *std::move(facts);
  CAPSTAN_RETURN_IF_ERROR(
      Annotate(KeyFits(files.certificate_pem, files.key_pem), absl::StrCat(path, "/", kKeyFile)));
  CAPSTAN_RETURN_IF_ERROR(
      Annotate(VerifyCertificate(files.certificate_pem, files.authorities_pem, now), certificate));
  return files;
}

std::string TlsFolder::DeniedPath() const { return absl::StrCat(path, "/", kDeniedFile); }

}  // namespace capstan
