#include "scheduler/cli/cluster/local_certificates.h"

#include <sys/stat.h>

#include <cerrno>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/security/certificates/certificate_authority.h"
#include "common/security/certificates/identity.h"
#include "common/security/certificates/tls_folder.h"
#include "common/status/status_macros.h"
#include "common/storage/files/replace_file.h"
#include "common/storage/own_folder.h"

namespace capstan::cli {
namespace {

constexpr char kCluster[] = "local";
constexpr absl::Duration kLifetime = absl::Hours(24 * 365);

absl::Status MakePrivateFolder(const std::string& path) {
  if (mkdir(path.c_str(), 0700) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, path);
}

}  // namespace

std::string LocalTlsFolder(const std::string& directory, const std::string& name) {
  return absl::StrCat(directory, "/tls/", name);
}

absl::Status MakeLocalCertificates(const std::string& directory, int servers, int workers) {
  const absl::Time now = absl::Now();
  CAPSTAN_ASSIGN_OR_RETURN(const CertificateAuthority authority,
                           CertificateAuthority::Create(kCluster, kLifetime, now));
  std::vector<Identity> all = {{kCluster, PeerRole::kScheduler, ""},
                               {kCluster, PeerRole::kAdmin, "user"}};
  for (int i = 1; i <= servers; ++i) {
    all.push_back({kCluster, PeerRole::kServer, absl::StrCat("server-", i)});
  }
  for (int i = 1; i <= workers; ++i) {
    all.push_back({kCluster, PeerRole::kWorker, absl::StrCat("worker-", i)});
  }
  const std::string root = absl::StrCat(directory, "/tls");
  CAPSTAN_RETURN_IF_ERROR(EmptyOwnFolder(root));
  for (const Identity& identity : all) {
    CAPSTAN_ASSIGN_OR_RETURN(
        const IssuedCertificate issued,
        authority.Issue(identity, {"127.0.0.1", "::1", "localhost"}, kLifetime, now));
    const std::string folder = LocalTlsFolder(
        directory, identity.role == PeerRole::kScheduler ? "scheduler" : identity.name);
    CAPSTAN_RETURN_IF_ERROR(MakePrivateFolder(folder));
    CAPSTAN_RETURN_IF_ERROR(
        ReplaceFile(absl::StrCat(folder, "/", kTrustedFile), authority.certificate_pem()));
    CAPSTAN_RETURN_IF_ERROR(
        ReplaceFile(absl::StrCat(folder, "/", kCertificateFile), issued.certificate_pem));
    CAPSTAN_RETURN_IF_ERROR(ReplaceFile(absl::StrCat(folder, "/", kKeyFile), issued.key_pem));
  }
  return absl::OkStatus();
}

}  // namespace capstan::cli
