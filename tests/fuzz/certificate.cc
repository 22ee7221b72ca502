// Bytes as files of certificates and keys, as PEM or as DER that the target puts into PEM. A
// certificate is refused, or says what the files that name it can say: its identity is an identity,
// and a deny list can have its serial. A key fits, or is refused; a chain is verified or not.
#include "common/security/certificates/certificate.h"

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/security/certificates/deny_list.h"
#include "common/security/certificates/identity.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"

namespace capstan::fuzz {
namespace {

std::string PemBlock(absl::string_view label, absl::string_view der) {
  std::string pem = absl::StrCat("-----BEGIN ", label, "-----\n");
  const std::string base64 = absl::Base64Escape(der);
  for (size_t i = 0; i < base64.size(); i += 64) {
    absl::StrAppend(&pem, absl::string_view(base64).substr(i, 64), "\n");
  }
  return absl::StrCat(pem, "-----END ", label, "-----\n");
}

std::string MakePem(Input& input) {
  std::string pem;
  while (!input.empty()) {
    const uint8_t what = input.Byte() % 4;
    const absl::string_view bytes = input.Take(input.Word());
    if (what == 0) absl::StrAppend(&pem, bytes);
    if (what == 1) absl::StrAppend(&pem, PemBlock("CERTIFICATE", bytes));
    if (what == 2) absl::StrAppend(&pem, PemBlock("PRIVATE KEY", bytes));
    if (what == 3) absl::StrAppend(&pem, PemBlock("EC PRIVATE KEY", bytes));
  }
  return pem;
}

void CheckFacts(const CertificateFacts& facts) {
  const std::string uri = FormatIdentity(facts.identity);
  const absl::StatusOr<Identity> identity = ParseIdentity(uri);
  FUZZ_CHECK(identity.ok() && *identity == facts.identity);
  const absl::StatusOr<std::string> serial = ParseDenyEntry(facts.serial);
  FUZZ_CHECK(serial.ok() && *serial == facts.serial);
  const absl::StatusOr<DenyEntries> by_serial = ParseDenyList(facts.serial);
  FUZZ_CHECK(by_serial.ok() && by_serial->Contains(facts));
  const absl::StatusOr<DenyEntries> by_identity = ParseDenyList(uri);
  FUZZ_CHECK(by_identity.ok() && by_identity->Contains(facts));
  FUZZ_CHECK(facts.not_before > absl::InfinitePast() && facts.not_after < absl::InfiniteFuture());
}

bool IsRefusal(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status);
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  const absl::Time now = absl::FromUnixSeconds(1'700'000'000) + absl::Hours(24 * input.Byte());
  const std::string pem = MakePem(input);
  const absl::StatusOr<CertificateFacts> facts = ReadCertificate(pem);
  if (facts.ok()) CheckFacts(*facts);
  if (!facts.ok()) FUZZ_CHECK(absl::IsInvalidArgument(facts.status()));
  const absl::Status fits = KeyFits(pem, pem);
  FUZZ_CHECK(fits.ok() || IsRefusal(fits));
  const absl::Status valid = VerifyCertificate(pem, pem, now);
  FUZZ_CHECK(valid.ok() ? facts.ok() : IsRefusal(valid));
  return 0;
}

}  // namespace capstan::fuzz
