#include "scheduler/cli/view/certificate_view.h"

#include "absl/strings/str_cat.h"
#include "scheduler/cli/view/text/format.h"
#include "scheduler/cli/view/text/text_table.h"

namespace capstan::cli {
namespace {

std::string StateOf(const CertificateOutput& certificate) {
  if (certificate.denied()) return "denied";
  return certificate.expired() ? "expired" : "valid";
}

}  // namespace

std::string CertificateTable(const CertificateListOutput& list) {
  if (list.certificates().empty()) return "No certificates.\n";
  TextTable table({{"SERIAL"}, {"IDENTITY"}, {"EXPIRES"}, {"STATE"}});
  for (const CertificateOutput& certificate : list.certificates()) {
    table.AddRow({certificate.serial(), certificate.identity(),
                  TimeText(certificate.not_after_unix_ms()), StateOf(certificate)});
  }
  return table.ToString();
}

std::string DescribeIssue(const IssueOutput& issue) {
  const CertificateOutput& certificate = issue.certificate();
  std::string text = absl::StrCat(issue.folder(), ": ", certificate.identity(), "\n  serial ",
                                  certificate.serial(), ", expires ",
                                  TimeText(certificate.not_after_unix_ms()), "\n");
  if (issue.former_folder().empty()) return text;
  absl::StrAppend(&text, "  The former files are still in ", issue.former_folder(),
                  ";\n  delete them once all readers have the new ones (daemons need a second).\n");
  return text;
}

std::string DescribeDenial(const DenyOutput& denial) {
  std::string text = absl::StrCat(denial.file(), denial.was_there() ? " already has " : ": added ",
                                  denial.entry(), "\n");
  for (const CertificateOutput& certificate : denial.certificates()) {
    absl::StrAppend(&text, "  denies ", certificate.serial(), " of ", certificate.identity(), "\n");
  }
  absl::StrAppend(&text, "Copy ", denial.file(),
                  " into the folder (--tls-dir) of each daemon: it reads the file once a "
                  "second.\n");
  return text;
}

}  // namespace capstan::cli
