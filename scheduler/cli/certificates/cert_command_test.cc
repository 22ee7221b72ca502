// The real `capstan cert`: an authority, a daemon, a user, and one who is denied. What it makes is
// checked by TlsFolder and, where it is installed, by the program openssl.
#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/security/certificates/deny_list.h"
#include "common/security/certificates/identity.h"
#include "common/security/certificates/tls_folder.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"

namespace capstan::cli::cert_command_test {
namespace {

namespace fs = std::filesystem;

struct Outcome {
  int exit_code = -1;
  std::string output;  // Standard output and error.
};

Outcome RunShell(const std::string& command) {
  FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  REQUIRE(pipe != nullptr);
  Outcome outcome;
  char piece[4096];
  while (const size_t got = std::fread(piece, 1, sizeof(piece), pipe)) {
    outcome.output.append(piece, got);
  }
  const int status = pclose(pipe);
  REQUIRE(WIFEXITED(status));
  outcome.exit_code = WEXITSTATUS(status);
  return outcome;
}

Outcome Capstan(const std::string& arguments) {
  return RunShell(absl::StrCat("scheduler/cli/capstan cert ", arguments));
}

std::string Done(const Outcome& outcome) {
  INFO(outcome.output);
  REQUIRE(outcome.exit_code == 0);
  return outcome.output;
}

// An authority in an empty folder; paths hold no blanks.
struct Fixture {
  Fixture() {
    setenv("HOME", root.c_str(), 1);  // The configuration file of who runs the test does not count.
    fs::remove_all(root);
    fs::create_directories(root);
    Done(Capstan(absl::StrCat("init --cluster=prod --dir=", ca)));
  }
  std::string Out(const std::string& name) const { return absl::StrCat(root, "/", name); }
  Outcome Node(const std::string& arguments, const std::string& out) const {
    return Capstan(absl::StrCat("node --ca=", ca, " --out=", Out(out), " ", arguments));
  }
  Outcome User(const std::string& arguments, const std::string& out) const {
    return Capstan(absl::StrCat("user --ca=", ca, " --out=", Out(out), " ", arguments));
  }
  TlsFolder Read(const std::string& name) const {
    REQUIRE_OK_AND_ASSIGN(TlsFolder files, TlsFolder::Read(Out(name), absl::Now()));
    return files;
  }

  const std::string root = testing::TestPath("cert");
  const std::string ca = root + "/ca";
};

TEST_CASE("capstan cert: daemons and users can read what was made for them", "[cli]") {
  Fixture f;
  Done(f.Node("--role=scheduler --host=head", "scheduler"));
  Done(f.Node("--role=worker --name=w-1 --host=gpu1 --host=10.0.0.7", "w-1"));
  Done(f.User("--name=ann", "ann"));
  Done(f.User("--name=root --admin", "root"));
  Done(f.User("--name=prom --metrics --days=90", "prom"));
  Done(f.User("--name=eve --reader", "eve"));
  CHECK(FormatIdentity(f.Read("scheduler").facts.identity) == "capstan://prod/scheduler");
  CHECK(FormatIdentity(f.Read("ann").facts.identity) == "capstan://prod/user/ann");
  CHECK(FormatIdentity(f.Read("root").facts.identity) == "capstan://prod/admin/root");
  CHECK(FormatIdentity(f.Read("eve").facts.identity) == "capstan://prod/reader/eve");
  const CertificateFacts metrics = f.Read("prom").facts;
  CHECK(FormatIdentity(metrics.identity) == "capstan://prod/metrics/prom");
  CHECK(metrics.not_after > absl::Now() + absl::Hours(24 * 89));
  const CertificateFacts worker = f.Read("w-1").facts;
  CHECK(worker.subject_alternative_names ==
        "URI:capstan://prod/worker/w-1, DNS:gpu1, IP Address:10.0.0.7");
  CHECK(worker.not_after < absl::Now() + absl::Hours(24 * 30));
}

TEST_CASE("capstan cert: openssl accepts the certificates", "[cli]") {
  if (RunShell("openssl version").exit_code != 0) {
    WARN("SKIPPED: the program openssl is not installed (Debian package openssl)");
    return;
  }
  Fixture f;
  Done(f.Node("--role=server --name=s-1 --host=big1 --host=::1", "s-1"));
  const std::string folder = f.Out("s-1");
  for (const char* purpose : {"sslserver", "sslclient"}) {
    Done(RunShell(absl::StrCat("openssl verify -x509_strict -purpose ", purpose, " -CAfile ",
                               folder, "/ca.pem ", folder, "/cert.pem")));
  }
  Done(RunShell(absl::StrCat("openssl pkey -noout -in ", folder, "/key.pem")));
  const std::string text =
      Done(RunShell(absl::StrCat("openssl x509 -noout -text -in ", folder, "/cert.pem")));
  for (const char* expected :
       {"URI:capstan://prod/server/s-1", "DNS:big1", "IP Address:0:0:0:0:0:0:0:1", "CA:FALSE",
        "TLS Web Server Authentication, TLS Web Client Authentication", "ecdsa-with-SHA256"}) {
    CHECK_THAT(text, Catch::Contains(expected));
  }
  const std::string serial =
      Done(RunShell(absl::StrCat("openssl x509 -noout -serial -in ", folder, "/cert.pem")));
  // openssl prints upper-case digits, which deny takes, too.
  const std::string digits = serial.substr(serial.find('=') + 1, 32);
  CHECK_THAT(Done(Capstan(absl::StrCat("deny --ca=", f.ca, " ", digits))),
             Catch::Contains("of capstan://prod/server/s-1"));
}

TEST_CASE("capstan: output that is lost is an error, unless its reader has left", "[cli]") {
  for (const char* const command : {"version", "--help"}) {
    const Outcome full =
        RunShell(absl::StrCat("(scheduler/cli/capstan ", command, " > /dev/full)"));
    CHECK(full.exit_code == 1);
    CHECK_THAT(full.output, Catch::Contains("standard output: No space left on device"));
  }
  const std::string pipe = testing::TestPath("pipe");
  Done(RunShell(absl::StrCat("rm -f ", pipe, "; mkfifo ", pipe)));
  // Descriptor 4 writes to a pipe that nobody reads any more.
  CHECK(Done(RunShell(absl::StrCat("exec 3<>", pipe, " 4>", pipe,
                                   " 3>&-; (scheduler/cli/capstan version >&4)"))) == "");
}

TEST_CASE("capstan cert: list shows what was issued and what is denied", "[cli]") {
  Fixture f;
  CHECK(Done(Capstan("list --ca=" + f.ca)) == "No certificates.\n");
  Done(f.User("--name=ann", "ann"));
  Done(f.User("--name=bob", "bob"));
  const CertificateFacts ann = f.Read("ann").facts;
  CHECK_THAT(Done(Capstan(absl::StrCat("deny --ca=", f.ca, " ", ann.serial))),
             Catch::Contains(f.ca + "/denied.txt"));
  const std::string table = Done(Capstan("list --ca=" + f.ca));
  CHECK_THAT(table, Catch::Contains(ann.serial) && Catch::Contains("denied"));
  CHECK_THAT(table, Catch::Contains("capstan://prod/user/bob") && Catch::Contains("valid"));
  const std::string json = Done(Capstan("list -o json --ca=" + f.ca));
  CHECK_THAT(json, Catch::Contains("\"denied\": true") && Catch::Contains("\"denied\": false"));
  CHECK_THAT(json, Catch::Contains("\"identity\": \"capstan://prod/user/ann\""));
  // The file that is copied to the daemons denies her certificate, and no other one.
  DenyList list(f.ca + "/denied.txt");
  list.Refresh();
  CHECK(list.Denies(ann));
  CHECK_FALSE(list.Denies(f.Read("bob").facts));
  // A serial that the authority does not know may be another authority's.
  CHECK_THAT(Done(Capstan(absl::StrCat("deny --ca=", f.ca, " 1234"))),
             Catch::Contains("no certificate that was issued there has 1234"));
}

TEST_CASE("capstan cert: certificates are replaced as a whole", "[cli]") {
  Fixture f;
  Done(f.Node("--role=worker --name=w-1 --host=gpu1", "w-1"));
  const std::string first = f.Read("w-1").facts.serial;
  const Outcome refused = f.Node("--role=worker --name=w-1 --host=gpu1", "w-1");
  CHECK(refused.exit_code == 1);
  CHECK_THAT(refused.output, Catch::Contains(f.Out("w-1")) && Catch::Contains("--replace"));
  CHECK(f.Read("w-1").facts.serial == first);
  Done(f.Node("--role=worker --name=w-1 --host=gpu1 --replace", "w-1"));
  CHECK(f.Read("w-1").facts.serial != first);

  fs::create_directory_symlink("w-1", f.Out("link"));
  CHECK_THAT(Done(f.Node("--role=worker --name=w-1 --host=gpu1", "link")),
             Catch::Contains("former files are still in"));
  CHECK(fs::is_symlink(f.Out("link")));
  CHECK(f.Read("link").facts.serial != f.Read("w-1").facts.serial);
}

TEST_CASE("capstan cert: wrong usage ends with 2 and what was expected", "[cli]") {
  Fixture f;
  const auto usage = [](const Outcome& outcome, const std::string& text) {
    CHECK(outcome.exit_code == 2);
    CHECK_THAT(outcome.output, Catch::Contains(text));
  };
  usage(f.Node("--role=admin --name=x --host=h", "x"), "scheduler");
  usage(f.Node("--role=scheduler --name=x --host=h", "x"), "expected none for a scheduler");
  usage(f.Node("--role=worker --host=h", "x"), "name");
  usage(f.Node("--role=worker --name=w-1", "x"), "--host");
  usage(f.Node("--role=worker --name=w-1 --host='a b'", "x"), "a b");
  usage(f.Node("--role=worker --name=w-1 --host=h --days=0", "x"), "lifetime");
  usage(f.User("--name=ann --admin --reader", "x"), "--reader");
  usage(Capstan("list --ca=" + f.Out("none")), "capstan cert init");
  usage(Capstan(absl::StrCat("deny --ca=", f.ca, " ann")), "expected a serial");
  CHECK_FALSE(fs::exists(f.Out("x")));
}

}  // namespace
}  // namespace capstan::cli::cert_command_test
