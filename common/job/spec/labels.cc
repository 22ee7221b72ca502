#include "common/job/spec/labels.h"

#include <algorithm>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace capstan {
namespace {

constexpr size_t kLabelsMax = 64;
constexpr size_t kKeyBytesMax = 63;
constexpr size_t kValueBytesMax = 255;
constexpr size_t kNoteBytesMax = 4096;

bool IsKey(absl::string_view key) {
  return !key.empty() && key.size() <= kKeyBytesMax &&
         std::all_of(key.begin(), key.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) ||
                  absl::string_view("-_./").find(static_cast<char>(c)) != absl::string_view::npos;
         });
}

}  // namespace

void ValidateLabels(const LabelMap& labels, const std::string& note, FieldChecker check) {
  if (labels.size() > kLabelsMax) {
    check.Wrong("labels", absl::StrCat(labels.size(), " labels"),
                absl::StrCat("at most ", kLabelsMax));
  }
  // Labels are checked in the order of their keys: the map's order differs from run to run.
  for (const auto& [key, value] :
       std::map<std::string, std::string>(labels.begin(), labels.end())) {
    if (!IsKey(key)) {
      check.Wrong("labels", absl::StrCat("the key ", Quote(key)),
                  absl::StrCat("1 to ", kKeyBytesMax, " letters, digits, '-', '_', '.' or '/'"));
    }
    if (value.size() > kValueBytesMax) {
      check.Wrong("labels", absl::StrCat("a value of ", value.size(), " bytes for ", Quote(key)),
                  absl::StrCat("at most ", kValueBytesMax));
    }
  }
  if (note.size() > kNoteBytesMax) {
    check.Wrong("note", absl::StrCat(note.size(), " bytes"),
                absl::StrCat("at most ", kNoteBytesMax));
  }
}

}  // namespace capstan
