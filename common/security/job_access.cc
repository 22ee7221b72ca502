#include "common/security/job_access.h"

#include "absl/strings/str_cat.h"

namespace capstan {
namespace {

bool Owns(const Identity& caller, absl::string_view owner) { return OwnerFor(caller) == owner; }

}  // namespace

std::string OwnerFor(const std::optional<Identity>& caller) {
  if (!caller.has_value()) return "";
  return absl::StrCat(PeerRoleName(caller->role), "/", caller->name);
}

bool MayRead(const std::optional<Identity>& caller, absl::string_view owner) {
  return !caller.has_value() || caller->role != PeerRole::kUser || Owns(*caller, owner);
}

bool MayChange(const std::optional<Identity>& caller, absl::string_view owner) {
  if (!caller.has_value() || caller->role == PeerRole::kAdmin) return true;
  return caller->role == PeerRole::kUser && Owns(*caller, owner);
}

}  // namespace capstan
