#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/command_line/command.h"
#include "common/security/certificates/certificate_authority.h"
#include "common/security/certificates/deny_list.h"
#include "common/security/certificates/identity.h"
#include "scheduler/cli/certificates/authority_folder.h"
#include "scheduler/cli/commands.h"
#include "scheduler/cli/console/console.h"
#include "scheduler/cli/console/exit_code.h"
#include "scheduler/cli/view/certificate_view.h"
#include "scheduler/cli/view/output.pb.h"
#include "scheduler/cli/view/text/format.h"

namespace capstan::cli {
namespace {

constexpr int kAuthorityDays = 365;
constexpr int kCertificateDays = 30;

absl::Duration Days(int days) { return days * absl::Hours(24); }

CertificateOutput ToOutput(const CertificateFacts& facts, bool is_denied) {
  CertificateOutput output;
  output.set_serial(facts.serial);
  output.set_identity(FormatIdentity(facts.identity));
  output.set_subject_alternative_names(facts.subject_alternative_names);
  output.set_not_before_unix_ms(absl::ToUnixMillis(facts.not_before));
  output.set_not_after_unix_ms(absl::ToUnixMillis(facts.not_after));
  output.set_expired(facts.not_after < absl::Now());
  output.set_denied(is_denied);
  return output;
}

struct InitArguments {
  std::string folder;
  std::string cluster;
  int days = kAuthorityDays;
};

int Init(const Settings& settings, const InitArguments& arguments) {
  const auto not_after =
      InitAuthority(arguments.folder, arguments.cluster, Days(arguments.days), absl::Now());
  if (!not_after.ok()) return Fail(not_after.status());
  AuthorityOutput output;
  output.set_cluster(arguments.cluster);
  output.set_folder(arguments.folder);
  output.set_not_after_unix_ms(absl::ToUnixMillis(*not_after));
  if (settings.format() == OutputFormat::kJson) {
    Print(ToJson(output));
    return kExitDone;
  }
  Print(absl::StrCat(output.folder(), ": the authority of cluster ", output.cluster(), ", expires ",
                     TimeText(output.not_after_unix_ms()), "\n  Whoever reads ", output.folder(),
                     "/", kAuthorityKeyFile,
                     " can be anyone in the cluster: keep it on no daemon's host.\n"));
  return kExitDone;
}

struct IssueArguments {
  std::string authority;
  std::string role;  // Only nodes have it.
  bool admin = false;
  bool reader = false;
  bool metrics = false;
  int days = kCertificateDays;
  bool replace = false;
  CertificateRequest request;
};

int Issue(const Settings& settings, const IssueArguments& arguments, PeerRole role) {
  CertificateRequest request = arguments.request;
  request.role = role;
  request.lifetime = Days(arguments.days);
  request.if_exists = arguments.replace ? IfFolderExists::kReplace : IfFolderExists::kRefuse;
  const auto made = IssueCertificate(arguments.authority, request, absl::Now());
  if (absl::IsAlreadyExists(made.status())) {
    return Fail(absl::AlreadyExistsError(
        absl::StrCat(made.status().message(), "; --replace puts the new one in its place")));
  }
  if (!made.ok()) return Fail(made.status());
  IssueOutput output;
  *output.mutable_certificate() = ToOutput(made->facts, /*is_denied=*/false);
  output.set_folder(request.out);
  output.set_former_folder(made->former);
  Print(settings.format() == OutputFormat::kJson ? ToJson(output) : DescribeIssue(output));
  return kExitDone;
}

int IssueToNode(const Settings& settings, const IssueArguments& arguments) {
  const auto role = ParsePeerRole(arguments.role);
  if (!role.ok()) return Fail(role.status());
  return Issue(settings, arguments, *role);
}

int IssueToUser(const Settings& settings, const IssueArguments& arguments) {
  const PeerRole role = arguments.admin     ? PeerRole::kAdmin
                        : arguments.reader  ? PeerRole::kReader
                        : arguments.metrics ? PeerRole::kMetrics
                                            : PeerRole::kUser;
  return Issue(settings, arguments, role);
}

int List(const Settings& settings, const std::string& authority) {
  const auto issued = ListIssued(authority);
  if (!issued.ok()) return Fail(issued.status());
  CertificateListOutput output;
  for (const RecordedCertificate& certificate : *issued) {
    *output.add_certificates() = ToOutput(certificate.facts, certificate.is_denied);
  }
  Print(settings.format() == OutputFormat::kJson ? ToJson(output) : CertificateTable(output));
  return kExitDone;
}

int Deny(const Settings& settings, const std::string& authority, const std::string& entry) {
  const auto denial = DenyCertificate(authority, entry);
  if (!denial.ok()) return Fail(denial.status());
  DenyOutput output;
  output.set_entry(denial->entry);
  output.set_file(absl::StrCat(authority, "/", kDeniedFile));
  output.set_was_there(denial->was_there);
  for (const RecordedCertificate& certificate : denial->certificates) {
    *output.add_certificates() = ToOutput(certificate.facts, /*is_denied=*/true);
  }
  if (output.certificates().empty()) {
    Note(absl::StrCat(authority, ": no certificate that was issued there has ", output.entry(),
                      "; see `capstan cert list`"));
  }
  Print(settings.format() == OutputFormat::kJson ? ToJson(output) : DescribeDenial(output));
  return kExitDone;
}

void AddInit(Command cert, CommandLine& line) {
  auto arguments = std::make_shared<InitArguments>();
  Command command = AddCommand(
      cert, "init", "Make the certificate authority of a cluster",
      "  capstan cert init --dir=ca --cluster=prod\n"
      "The folder gets ca.pem, which is public, and ca-key.pem, with which certificates are made.\n"
      "Keep it on the operator's machine, and have a copy of it.",
      line, [arguments](const Settings& settings) { return Init(settings, *arguments); },
      Concerns::kThisMachine);
  command.AddOption("--dir", arguments->folder, "The folder to make")
      .Required()
      .ValueName("FOLDER");
  command
      .AddOption("--cluster", arguments->cluster,
                 "Name of the cluster: lower-case letters, digits, '.' and '-'")
      .Required()
      .ValueName("NAME");
  command.AddOption("--days", arguments->days, "How long the authority is valid").ShowDefault();
}

void AddIssueOptions(Command command, IssueArguments* arguments) {
  command.AddOption("--ca", arguments->authority, "The authority's folder (`capstan cert init`)")
      .Required()
      .ValueName("FOLDER");
  command
      .AddOption("--out", arguments->request.out,
                 "The folder to make, for --tls-dir; a symbolic link is swapped to a new folder")
      .Required()
      .ValueName("FOLDER");
  command.AddOption("--days", arguments->days, "How long the certificate is valid").ShowDefault();
  command.AddFlag("--replace", arguments->replace, "Replace an earlier folder of certificates");
}

void AddNode(Command cert, CommandLine& line) {
  auto arguments = std::make_shared<IssueArguments>();
  Command command = AddCommand(
      cert, "node", "Make the folder of certificates of a daemon",
      "  capstan cert node --ca=ca --role=scheduler --host=head --out=scheduler\n"
      "  capstan cert node --ca=ca --role=worker --name=w-1 --host=gpu1 --host=10.0.0.7 --out=w-1\n"
      "  capstan cert node --ca=ca --role=worker --name=w-1 --host=gpu1 --out=w-1 --replace\n"
      "Copy the folder to the daemon's host and start the daemon with --tls-dir. It gets ca.pem,\n"
      "cert.pem, key.pem (secret) and denied.txt, and is made as a whole. If --out is a symbolic\n"
      "link, it is swapped to the new folder; daemons that read the link need no restart.",
      line, [arguments](const Settings& settings) { return IssueToNode(settings, *arguments); },
      Concerns::kThisMachine);
  command.AddOption("--role", arguments->role, "scheduler, server or worker")
      .Required()
      .OneOf({"scheduler", "server", "worker"})
      .ValueName("ROLE");
  command.AddOption("--name", arguments->request.name, "The daemon's --name; a scheduler has none")
      .ValueName("ID");
  command
      .AddOption("--host", arguments->request.hosts,
                 "Name or IP address of the daemon's host; may be given more than once")
      .Required()
      .ValueName("HOST");
  AddIssueOptions(command, arguments.get());
}

void AddUser(Command cert, CommandLine& line) {
  auto arguments = std::make_shared<IssueArguments>();
  Command command = AddCommand(
      cert, "user", "Make the folder of certificates of a person or a program",
      "  capstan cert user --ca=ca --name=ann --out=ann\n"
      "  capstan cert user --ca=ca --name=prometheus --metrics --out=prometheus --days=90\n"
      "  capstan job list --tls-dir=ann\n"
      "Without --admin, --reader or --metrics it is a user, who submits jobs and sees those alone.",
      line, [arguments](const Settings& settings) { return IssueToUser(settings, *arguments); },
      Concerns::kThisMachine);
  command.AddOption("--name", arguments->request.name, "Name of the person or program")
      .Required()
      .ValueName("NAME");
  Option admin = command.AddFlag("--admin", arguments->admin, "May do everything, with all jobs");
  Option reader = command.AddFlag("--reader", arguments->reader, "May only read: all jobs");
  Option metrics = command.AddFlag("--metrics", arguments->metrics, "May only read metrics");
  admin.Excludes(reader).Excludes(metrics);
  reader.Excludes(metrics);
  AddIssueOptions(command, arguments.get());
}

void AddListAndDeny(Command cert, CommandLine& line) {
  auto authority = std::make_shared<std::string>();
  auto entry = std::make_shared<std::string>();
  Command list = AddCommand(
      cert, "list", "The certificates that an authority issued",
      "  capstan cert list --ca=ca\n  capstan cert list --ca=ca -o json", line,
      [authority](const Settings& settings) { return List(settings, *authority); },
      Concerns::kThisMachine);
  Command deny = AddCommand(
      cert, "deny", "Refuse a certificate before it expires",
      "  capstan cert deny --ca=ca 4fd08b1a77e3c2905b6d1e0a9c8f7e6d   # one certificate\n"
      "  capstan cert deny --ca=ca capstan://prod/user/ann           # all of hers, now and later\n"
      "It adds a line to denied.txt in the authority's folder. THAT FILE MUST BE COPIED into the\n"
      "folder (--tls-dir) of each daemon. Daemons read it once a second, so they need no restart.\n"
      "Folders that are made later get it, too.",
      line,
      [authority, entry](const Settings& settings) { return Deny(settings, *authority, *entry); },
      Concerns::kThisMachine);
  for (Command command : {list, deny}) {
    command.AddOption("--ca", *authority, "The authority's folder (`capstan cert init`)")
        .Required()
        .ValueName("FOLDER");
  }
  deny.AddOption("SERIAL|URI", *entry,
                 "A serial, as `capstan cert list` shows it, or an identity, as "
                 "capstan://CLUSTER/worker/w-1")
      .Required();
}

}  // namespace

void AddCertCommands(Command cert, CommandLine& line) {
  AddInit(cert, line);
  AddNode(cert, line);
  AddUser(cert, line);
  AddListAndDeny(cert, line);
}

}  // namespace capstan::cli
