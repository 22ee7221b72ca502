#include "common/security/certificates/identity.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

constexpr std::pair<PeerRole, absl::string_view> kRoles[] = {
    {PeerRole::kScheduler, "scheduler"}, {PeerRole::kServer, "server"},
    {PeerRole::kWorker, "worker"},       {PeerRole::kUser, "user"},
    {PeerRole::kReader, "reader"},       {PeerRole::kMetrics, "metrics"},
    {PeerRole::kAdmin, "admin"},
};

constexpr absl::string_view kExpectedUri =
    "expected capstan://CLUSTER/scheduler, or capstan://CLUSTER/ROLE/NAME with the role server, "
    "worker, user, reader, metrics or admin";

}  // namespace

absl::string_view PeerRoleName(PeerRole role) {
  for (const auto& [each, name] : kRoles) {
    if (each == role) return name;
  }
  return "unknown";
}

absl::StatusOr<PeerRole> ParsePeerRole(absl::string_view name) {
  std::vector<absl::string_view> names;
  for (const auto& [role, each] : kRoles) {
    if (each == name) return role;
    names.push_back(each);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "role: \"", absl::CHexEscape(name), "\", expected one of ", absl::StrJoin(names, ", ")));
}

absl::Status CheckIdentityName(absl::string_view what, absl::string_view name) {
  const auto is_letter_or_digit = [](char c) {
    return absl::ascii_islower(static_cast<unsigned char>(c)) ||
           absl::ascii_isdigit(static_cast<unsigned char>(c));
  };
  const bool well_formed = !name.empty() && name.size() <= kIdentityNameBytesMax &&
                           is_letter_or_digit(name[0]) &&
                           std::all_of(name.begin(), name.end(), [&is_letter_or_digit](char c) {
                             return is_letter_or_digit(c) || c == '.' || c == '-';
                           });
  if (well_formed) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": \"", absl::CHexEscape(name), "\" is not 1 to ", kIdentityNameBytesMax,
                   " lower-case letters, digits, '.' or '-' that begin with a letter or a digit"));
}

absl::Status CheckIdentity(const Identity& identity) {
  CAPSTAN_RETURN_IF_ERROR(CheckIdentityName("cluster", identity.cluster));
  if (identity.role != PeerRole::kScheduler) return CheckIdentityName("name", identity.name);
  if (identity.name.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("name: \"", absl::CHexEscape(identity.name),
                                                 "\", expected none for a scheduler"));
}

absl::StatusOr<Identity> ParseIdentity(absl::string_view uri) {
  const auto error = [uri](absl::string_view reason) {
    return absl::InvalidArgumentError(
        absl::StrCat("identity \"", absl::CHexEscape(uri), "\": ", reason));
  };
  absl::string_view rest = uri;
  if (!absl::ConsumePrefix(&rest, kIdentityScheme)) return error(kExpectedUri);
  const std::vector<absl::string_view> parts = absl::StrSplit(rest, '/');
  if (parts.size() < 2) return error(kExpectedUri);
  const absl::StatusOr<PeerRole> role = ParsePeerRole(parts[1]);
  if (!role.ok()) return error(kExpectedUri);
  if (parts.size() != (*role == PeerRole::kScheduler ? 2u : 3u)) return error(kExpectedUri);
  Identity identity{.cluster = std::string(parts[0]), .role = *role};
  if (parts.size() == 3) identity.name = std::string(parts[2]);
  if (const absl::Status status = CheckIdentity(identity); !status.ok()) {
    return error(status.message());
  }
  return identity;
}

std::string FormatIdentity(const Identity& identity) {
  std::string uri =
      absl::StrCat(kIdentityScheme, identity.cluster, "/", PeerRoleName(identity.role));
  if (identity.role != PeerRole::kScheduler) absl::StrAppend(&uri, "/", identity.name);
  return uri;
}

}  // namespace capstan
