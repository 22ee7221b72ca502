#include "common/job/fields/field_names.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/job/fields/field_checker.h"

namespace capstan {
namespace {

constexpr size_t kNameBytesMax = 1000;

std::string Join(absl::string_view path, absl::string_view name) {
  return path.empty() ? std::string(name) : absl::StrCat(path, ".", name);
}

std::string DidYouMean(absl::string_view name, const std::vector<std::string>& candidates) {
  const std::string nearest = Nearest(name, candidates);
  return nearest.empty() ? "" : absl::StrCat("; did you mean \"", nearest, "\"?");
}

}  // namespace

int EditDistance(absl::string_view a, absl::string_view b) {
  a = a.substr(0, kNameBytesMax);
  b = b.substr(0, kNameBytesMax);
  std::vector<int> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) above[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int substitution = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, substitution});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before.swap(above);
    above.swap(row);
  }
  return above[b.size()];
}

std::string Nearest(absl::string_view name, const std::vector<std::string>& candidates) {
  std::string nearest;
  int distance_min = std::numeric_limits<int>::max();
  for (const std::string& candidate : candidates) {
    const int distance = EditDistance(name, candidate);
    if (distance < distance_min) {
      distance_min = distance;
      nearest = candidate;
    }
  }
  const int limit = std::max(1, static_cast<int>(std::max(name.size(), nearest.size())) / 3);
  return distance_min <= limit ? nearest : "";
}

Diagnostic UnknownField(const google::protobuf::Descriptor& message, absl::string_view path,
                        absl::string_view name) {
  std::vector<std::string> known;
  for (int i = 0; i < message.field_count(); ++i) known.push_back(message.field(i)->name());
  const std::string whole = path.empty() ? "a job" : std::string(path);
  const std::string has = known.empty() ? absl::StrCat(whole, " has no fields")
                                        : absl::StrCat(whole, " has ", absl::StrJoin(known, ", "));
  const std::string hint = DidYouMean(name, known);
  return {Join(path, name), std::string(name), absl::StrCat("one of ", absl::StrJoin(known, ", ")),
          absl::StrCat("no such field", hint, hint.empty() ? "; " : " ", has)};
}

Diagnostic UnknownEnumValue(const google::protobuf::EnumDescriptor& type, absl::string_view path,
                            absl::string_view name) {
  std::vector<std::string> known;
  for (int i = 0; i < type.value_count(); ++i) {
    if (type.value(i)->number() != 0) known.push_back(type.value(i)->name());
  }
  const std::string expected = absl::StrCat("one of ", absl::StrJoin(known, ", "));
  return {std::string(path), std::string(name), expected,
          absl::StrCat("got ", Quote(name), ", expected ", expected, DidYouMean(name, known))};
}

}  // namespace capstan
