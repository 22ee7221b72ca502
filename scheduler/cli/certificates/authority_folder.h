// AuthorityFolder: a cluster's certificate authority in a folder, with a record of what it issued.
//
//   FOLDER/ca.pem, ca-key.pem   see common/security/certificates/certificate_authority.h
//          issued/SERIAL.pem    every certificate that was issued, without its key
//          denied.txt           see common/security/certificates/deny_list.h; each folder that is
//                               made gets a copy
//
// `capstan cert` keeps it on the operator's machine. Processes that change it at the same time wait
// for each other (flock on FOLDER). A certificate is recorded before its folder is made, so that
// every certificate in use can be listed and denied.
// Thread safety: functions without state.
#ifndef CAPSTAN_SCHEDULER_CLI_CERTIFICATES_AUTHORITY_FOLDER_H_
#define CAPSTAN_SCHEDULER_CLI_CERTIFICATES_AUTHORITY_FOLDER_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/security/certificates/certificate.h"
#include "common/security/certificates/identity.h"
#include "scheduler/cli/certificates/publish_folder.h"

namespace capstan::cli {

inline constexpr absl::string_view kIssuedFolder = "issued";

struct RecordedCertificate {
  CertificateFacts facts;
  bool is_denied = false;
};

struct CertificateRequest {
  PeerRole role = PeerRole::kReader;
  std::string name;                // Empty for a scheduler.
  std::vector<std::string> hosts;  // See CertificateAuthority::Issue.
  absl::Duration lifetime;
  std::string out;  // The folder to make, for TlsFolder::Read.
  IfFolderExists if_exists = IfFolderExists::kRefuse;
};

struct MadeFolder {
  CertificateFacts facts;
  std::string former;  // The earlier target, if `out` was a symbolic link; otherwise empty.
};

struct Denial {
  std::string entry;                              // As denied.txt has it.
  bool was_there = false;                         // denied.txt had it already and is unchanged.
  std::vector<RecordedCertificate> certificates;  // The issued ones that it denies.
};

// Makes the folder, mode 0700, with a new authority. Returns the end of the authority's lifetime.
// Errors: those of CertificateAuthority::Create and PublishFolder.
absl::StatusOr<absl::Time> InitAuthority(const std::string& folder, const std::string& cluster,
                                         absl::Duration lifetime, absl::Time now);

// Issues a certificate, records it and makes the folder `request.out`.
// Errors: kNotFound            no authority in `folder`.
//         kFailedPrecondition  denied.txt has the identity, so nobody would accept it.
//         kInvalidArgument     denied.txt cannot be parsed.
//         Those of CertificateAuthority and PublishFolder.
absl::StatusOr<MadeFolder> IssueCertificate(const std::string& folder,
                                            const CertificateRequest& request, absl::Time now);

// Returns the issued certificates, ordered by identity, then newest first. Does not read the
// authority's key.
// Errors: kNotFound         no authority in `folder`.
//         kInvalidArgument  a file that is no certificate, or a denied.txt that cannot be parsed.
//         kUnavailable, kPermissionDenied  a file cannot be read.
absl::StatusOr<std::vector<RecordedCertificate>> ListIssued(const std::string& folder);

// Adds a serial or an identity to denied.txt, which is replaced as a whole. An identity denies all
// of its certificates, also those that are issued later.
// Errors: those of ParseDenyEntry and ListIssued; that of the operating system, with the path.
absl::StatusOr<Denial> DenyCertificate(const std::string& folder, absl::string_view entry);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_CERTIFICATES_AUTHORITY_FOLDER_H_
