// Text as a deny list: it is refused if and only if one of its lines is, entries have one text each
// and a list of them is the same list again. Lines as identities, too: what is accepted is exactly
// what is written of the identity.
#include "common/security/certificates/deny_list.h"

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/security/certificates/identity.h"
#include "tests/fuzz/target.h"

namespace capstan::fuzz {
namespace {

void CheckIdentityIn(absl::string_view line) {
  const absl::StatusOr<Identity> identity = ParseIdentity(line);
  if (!identity.ok()) return FUZZ_CHECK(absl::IsInvalidArgument(identity.status()));
  FUZZ_CHECK(CheckIdentity(*identity).ok());
  FUZZ_CHECK(FormatIdentity(*identity) == line);
}

// Returns whether it is an entry.
bool CheckEntry(absl::string_view text) {
  const absl::StatusOr<std::string> entry = ParseDenyEntry(text);
  if (!entry.ok()) {
    FUZZ_CHECK(absl::IsInvalidArgument(entry.status()));
    return false;
  }
  const absl::StatusOr<std::string> again = ParseDenyEntry(*entry);
  FUZZ_CHECK(again.ok() && *again == *entry);
  return true;
}

std::string ListOf(const DenyEntries& entries) {
  std::string list;
  for (const std::string& serial : entries.serials) absl::StrAppend(&list, serial, "\n");
  for (const std::string& identity : entries.identities) absl::StrAppend(&list, identity, "\n");
  return list;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  bool good = true;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    CheckIdentityIn(line);
    line = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    good = (line.empty() || CheckEntry(line)) && good;
  }
  const absl::StatusOr<DenyEntries> entries = ParseDenyList(text);
  FUZZ_CHECK(entries.ok() == good);
  if (!entries.ok()) return 0;
  const absl::StatusOr<DenyEntries> again = ParseDenyList(ListOf(*entries));
  FUZZ_CHECK(again.ok() && again->serials == entries->serials &&
             again->identities == entries->identities);
  return 0;
}

}  // namespace capstan::fuzz
