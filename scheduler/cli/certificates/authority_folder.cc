#include "scheduler/cli/certificates/authority_folder.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/security/certificates/certificate_authority.h"
#include "common/security/certificates/deny_list.h"
#include "common/security/certificates/security_file.h"
#include "common/security/certificates/tls_folder.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/storage/files/descriptor.h"
#include "common/tensor/safetensors/durable_file.h"

namespace capstan::cli {
namespace {

constexpr absl::string_view kRecordSuffix = ".pem";

const std::vector<std::string>& TlsFolderNames() {
  static const auto* const names =
      new std::vector<std::string>{std::string(kTrustedFile), std::string(kCertificateFile),
                                   std::string(kKeyFile), std::string(kDeniedFile)};
  return *names;
}

// Returns the open folder of an authority, locked until it is closed.
absl::StatusOr<Descriptor> LockAuthority(const std::string& folder) {
  Descriptor fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const bool found =
      fd.ok() && faccessat(fd.get(), std::string(kAuthorityFile).c_str(), F_OK, 0) == 0;
  if (!found) {
    const int error = errno;
    const std::string text =
        absl::StrCat(folder, fd.ok() ? absl::StrCat("/", kAuthorityFile) : "", ": ",
                     std::strerror(error), "; expected a folder that `capstan cert init` made");
    return error == EACCES ? absl::PermissionDeniedError(text) : absl::NotFoundError(text);
  }
  while (flock(fd.get(), LOCK_EX) != 0) {
    if (errno != EINTR) {
      return absl::UnavailableError(absl::StrCat("cannot lock ", folder, ": ", strerror(errno)));
    }
  }
  return fd;
}

struct DeniedFile {
  std::string text;
  DenyEntries entries;
};

// A missing file is an empty one.
absl::StatusOr<DeniedFile> ReadDenied(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", kDeniedFile);
  DeniedFile denied;
  absl::StatusOr<std::string> text = ReadSecurityFile(AT_FDCWD, path, path, Secrecy::kPublic);
  if (absl::IsNotFound(text.status())) return denied;
  if (!text.ok()) return text.status();
  denied.text = *std::move(text);
  absl::StatusOr<DenyEntries> entries = ParseDenyList(denied.text);
  if (!entries.ok()) return Annotate(entries.status(), path);
  denied.entries = *std::move(entries);
  return denied;
}

absl::StatusOr<std::vector<RecordedCertificate>> ReadIssued(const std::string& folder,
                                                            const DenyEntries& denied) {
  const std::string issued = absl::StrCat(folder, "/", kIssuedFolder);
  std::vector<RecordedCertificate> certificates;
  std::error_code error;
  std::filesystem::directory_iterator file(issued, error);
  if (error == std::errc::no_such_file_or_directory) return certificates;
  for (; !error && file != std::filesystem::directory_iterator(); file.increment(error)) {
    const std::string path = file->path().string();
    // A process that was killed may have left a temporary file.
    if (!absl::EndsWith(path, kRecordSuffix)) continue;
    CAPSTAN_ASSIGN_OR_RETURN(const std::string pem,
                             ReadSecurityFile(AT_FDCWD, path, path, Secrecy::kPublic));
    absl::StatusOr<CertificateFacts> facts = ReadCertificate(pem);
    if (!facts.ok()) return Annotate(facts.status(), path);
    const bool is_denied = denied.Contains(*facts);
    certificates.push_back({.facts = *std::move(facts), .is_denied = is_denied});
  }
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot read ", issued));
  const auto order = [](const RecordedCertificate& certificate) {
    const CertificateFacts& facts = certificate.facts;
    return std::tuple(FormatIdentity(facts.identity), absl::UnixEpoch() - facts.not_before,
                      facts.serial);
  };
  std::sort(certificates.begin(), certificates.end(),
            [&order](const RecordedCertificate& a, const RecordedCertificate& b) {
              return order(a) < order(b);
            });
  return certificates;
}

absl::Status Record(const std::string& folder, const IssuedCertificate& issued) {
  const std::string records = absl::StrCat(folder, "/", kIssuedFolder);
  CAPSTAN_RETURN_IF_ERROR(MakeDirectories(records));
  CAPSTAN_RETURN_IF_ERROR(SyncDirectory(folder));
  return WriteFileDurably(absl::StrCat(records, "/", issued.facts.serial, kRecordSuffix),
                          {issued.certificate_pem});
}

}  // namespace

absl::StatusOr<absl::Time> InitAuthority(const std::string& folder, const std::string& cluster,
                                         absl::Duration lifetime, absl::Time now) {
  CAPSTAN_ASSIGN_OR_RETURN(const CertificateAuthority authority,
                           CertificateAuthority::Create(cluster, lifetime, now));
  const absl::StatusOr<std::string> made = PublishFolder(
      folder,
      {{.name = std::string(kAuthorityFile), .content = authority.certificate_pem()},
       {.name = std::string(kAuthorityKeyFile), .content = authority.key_pem(), .mode = 0600}},
      {}, IfFolderExists::kRefuse);
  CAPSTAN_RETURN_IF_ERROR(made.status());
  return authority.not_after();
}

absl::StatusOr<MadeFolder> IssueCertificate(const std::string& folder,
                                            const CertificateRequest& request, absl::Time now) {
  CAPSTAN_ASSIGN_OR_RETURN(const Descriptor lock, LockAuthority(folder));
  CAPSTAN_RETURN_IF_ERROR(CheckMayPublish(request.out, TlsFolderNames(), request.if_exists));
  CAPSTAN_ASSIGN_OR_RETURN(const CertificateAuthority authority,
                           CertificateAuthority::Load(folder));
  CAPSTAN_ASSIGN_OR_RETURN(const DeniedFile denied, ReadDenied(folder));
  CAPSTAN_ASSIGN_OR_RETURN(
      const IssuedCertificate issued,
      authority.Issue({.cluster = authority.cluster(), .role = request.role, .name = request.name},
                      request.hosts, request.lifetime, now));
  if (denied.entries.Contains(issued.facts)) {
    return absl::FailedPreconditionError(absl::StrCat(
        folder, "/", kDeniedFile, ": it denies ", FormatIdentity(issued.facts.identity),
        ", expected another name, or that this line is removed from all copies"));
  }
  CAPSTAN_RETURN_IF_ERROR(Record(folder, issued));
  MadeFolder made{.facts = issued.facts};
  CAPSTAN_ASSIGN_OR_RETURN(
      made.former,
      PublishFolder(request.out,
                    {{.name = std::string(kTrustedFile), .content = authority.certificate_pem()},
                     {.name = std::string(kCertificateFile), .content = issued.certificate_pem},
                     {.name = std::string(kKeyFile), .content = issued.key_pem, .mode = 0600},
                     {.name = std::string(kDeniedFile), .content = denied.text}},
                    TlsFolderNames(), request.if_exists));
  return made;
}

absl::StatusOr<std::vector<RecordedCertificate>> ListIssued(const std::string& folder) {
  CAPSTAN_ASSIGN_OR_RETURN(const Descriptor lock, LockAuthority(folder));
  CAPSTAN_ASSIGN_OR_RETURN(const DeniedFile denied, ReadDenied(folder));
  return ReadIssued(folder, denied.entries);
}

absl::StatusOr<Denial> DenyCertificate(const std::string& folder, absl::string_view entry) {
  Denial denial;
  CAPSTAN_ASSIGN_OR_RETURN(denial.entry, ParseDenyEntry(entry));
  CAPSTAN_ASSIGN_OR_RETURN(const Descriptor lock, LockAuthority(folder));
  CAPSTAN_ASSIGN_OR_RETURN(const DeniedFile denied, ReadDenied(folder));
  CAPSTAN_ASSIGN_OR_RETURN(DenyEntries only, ParseDenyList(denial.entry));
  CAPSTAN_ASSIGN_OR_RETURN(std::vector<RecordedCertificate> issued, ReadIssued(folder, only));
  for (RecordedCertificate& certificate : issued) {
    if (certificate.is_denied) denial.certificates.push_back(std::move(certificate));
  }
  denial.was_there = denied.entries.serials.contains(denial.entry) ||
                     denied.entries.identities.contains(denial.entry);
  if (denial.was_there) return denial;
  const bool ends_in_line = denied.text.empty() || absl::EndsWith(denied.text, "\n");
  // The identity of a serial is for people who read the file.
  const bool is_known_serial =
      !denial.certificates.empty() && !absl::StartsWith(denial.entry, kIdentityScheme);
  const std::string comment =
      is_known_serial ? absl::StrCat("  # ", FormatIdentity(denial.certificates[0].facts.identity))
                      : "";
  CAPSTAN_RETURN_IF_ERROR(
      WriteFileDurably(absl::StrCat(folder, "/", kDeniedFile),
                       {denied.text, ends_in_line ? "" : "\n", denial.entry, comment, "\n"}));
  return denial;
}

}  // namespace capstan::cli
