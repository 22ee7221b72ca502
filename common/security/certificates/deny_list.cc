#include "common/security/certificates/deny_list.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/security/certificates/security_file.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/storage/files/descriptor.h"

namespace capstan {

bool DenyEntries::Contains(const CertificateFacts& facts) const {
  return serials.contains(facts.serial) || identities.contains(FormatIdentity(facts.identity));
}

absl::StatusOr<std::string> ParseDenyEntry(absl::string_view text) {
  if (absl::StartsWith(text, kIdentityScheme)) {
    CAPSTAN_ASSIGN_OR_RETURN(const Identity identity, ParseIdentity(text));
    return FormatIdentity(identity);
  }
  std::string digits = absl::AsciiStrToLower(absl::StrReplaceAll(text, {{":", ""}}));
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size() - 1));
  const bool hexadecimal = !digits.empty() && digits.size() <= kSerialDigitsMax &&
                           std::all_of(digits.begin(), digits.end(), [](char c) {
                             return absl::ascii_isxdigit(static_cast<unsigned char>(c));
                           });
  if (hexadecimal) return digits;
  return absl::InvalidArgumentError(
      absl::StrCat("\"", absl::CHexEscape(text), "\": expected a serial of 1 to ", kSerialDigitsMax,
                   " hexadecimal digits, or an identity ", kIdentityScheme, "CLUSTER/ROLE/NAME"));
}

absl::StatusOr<DenyEntries> ParseDenyList(absl::string_view text) {
  DenyEntries entries;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    absl::StatusOr<std::string> entry = ParseDenyEntry(line);
    if (!entry.ok()) return Annotate(entry.status(), absl::StrCat("line ", number));
    auto& set = absl::StartsWith(*entry, kIdentityScheme) ? entries.identities : entries.serials;
    set.insert(*std::move(entry));
  }
  return entries;
}

bool DenyList::Denies(const CertificateFacts& facts) const {
  return !status_.ok() || entries_.Contains(facts);
}

void DenyList::Refresh() {
  const std::filesystem::path path(path_);
  const std::string folder_path = path.has_parent_path() ? path.parent_path().string() : ".";
  const Descriptor folder(open(folder_path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder.ok() && errno == ENOENT) return;
  const std::string name = path.filename().string();
  struct stat file {};
  if (!folder.ok() || fstatat(folder.get(), name.c_str(), &file, 0) != 0) {
    entries_ = DenyEntries();
    stamp_.reset();
    status_ = errno == ENOENT
                  ? absl::OkStatus()
                  : absl::UnavailableError(absl::StrCat(path_, ": ", std::strerror(errno)));
    return;
  }
  const Stamp stamp{.device = file.st_dev,
                    .inode = file.st_ino,
                    .bytes = file.st_size,
                    .modified_seconds = file.st_mtim.tv_sec,
                    .modified_nanoseconds = file.st_mtim.tv_nsec};
  if (stamp_ == stamp) return;
  stamp_.reset();
  const absl::StatusOr<std::string> text =
      ReadSecurityFile(folder.get(), name, path_, Secrecy::kPublic);
  status_ = text.status();
  if (!text.ok()) return;
  absl::StatusOr<DenyEntries> entries = ParseDenyList(*text);
  status_ = Annotate(entries.status(), path_);
  if (entries.ok()) entries_ = *std::move(entries);
  stamp_ = stamp;
}

}  // namespace capstan
