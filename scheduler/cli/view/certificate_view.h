// Certificates as text: `capstan cert`.
//
// Thread safety: pure functions, but for the machine's time zone.
#ifndef CAPSTAN_SCHEDULER_CLI_VIEW_CERTIFICATE_VIEW_H_
#define CAPSTAN_SCHEDULER_CLI_VIEW_CERTIFICATE_VIEW_H_

#include <string>

#include "scheduler/cli/view/output.pb.h"

namespace capstan::cli {

// One row for each certificate.
std::string CertificateTable(const CertificateListOutput& list);

// Describes the issued certificate, and says what to do with the former folder.
std::string DescribeIssue(const IssueOutput& issue);

// Lists the certificates that the entry denies, and says where to copy the file.
std::string DescribeDenial(const DenyOutput& denial);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_VIEW_CERTIFICATE_VIEW_H_
