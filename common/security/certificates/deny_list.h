// DenyList: the certificates that a daemon refuses although they are valid, kept in a file.
//
//   # The laptop of ann was stolen.
//   4fd08b1a77e3c2905b6d1e0a9c8f7e6d       a serial, in hexadecimal digits
//   capstan://prod/worker/w-7              an identity: all of its certificates
//
// Each line has one entry; '#' begins a comment. A serial may have upper-case digits, colons and
// leading zeros, as other tools print it. If there is no file, nobody is denied. A file that cannot
// be read or parsed denies everybody: a mistake in it must not let in whom it was to keep out. The
// list stays as it was while the file's folder is missing, as when one is swapped for another.
// Thread safety: ParseDenyList is a pure function; a DenyList is thread-compatible.
#ifndef CAPSTAN_COMMON_SECURITY_CERTIFICATES_DENY_LIST_H_
#define CAPSTAN_COMMON_SECURITY_CERTIFICATES_DENY_LIST_H_

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/security/certificates/certificate.h"

namespace capstan {

// The name of the file in a folder of certificates.
inline constexpr absl::string_view kDeniedFile = "denied.txt";

struct DenyEntries {
  absl::flat_hash_set<std::string> serials;     // As CertificateFacts::serial.
  absl::flat_hash_set<std::string> identities;  // As FormatIdentity().

  bool Contains(const CertificateFacts& facts) const;
};

// Returns the entry as the file should have it: a serial or an identity.
// Errors: kInvalidArgument  neither; a serial has 1 to 40 hexadecimal digits.
absl::StatusOr<std::string> ParseDenyEntry(absl::string_view text);

// Errors: kInvalidArgument  names the first wrong line.
absl::StatusOr<DenyEntries> ParseDenyList(absl::string_view text);

class DenyList {
 public:
  explicit DenyList(std::string path) : path_(std::move(path)) {}

  // Reads the file again if its inode, size or time of modification has changed, or if the last
  // attempt failed to read it. Costs an open() and a stat() if nothing has changed.
  void Refresh();
  // Judges by the file as the last Refresh found it.
  bool Denies(const CertificateFacts& facts) const;

  // Says why everybody is denied; OK if the file could be parsed or does not exist. It is the
  // result of the last Refresh(). Errors: those of ReadSecurityFile and ParseDenyList; each names
  // the path.
  const absl::Status& status() const { return status_; }

  const std::string& path() const { return path_; }

 private:
  // Identifies one content of the file.
  struct Stamp {
    dev_t device = 0;
    ino_t inode = 0;
    off_t bytes = 0;
    int64_t modified_seconds = 0;
    int64_t modified_nanoseconds = 0;
    friend bool operator==(const Stamp&, const Stamp&) = default;
  };

  const std::string path_;
  absl::Status status_;
  // Belongs to the content in entries_ or status_; nullopt: the file must be read again.
  std::optional<Stamp> stamp_;
  DenyEntries entries_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_SECURITY_CERTIFICATES_DENY_LIST_H_
