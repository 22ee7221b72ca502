#include "common/storage/file_name.h"

#include <limits.h>

#include <algorithm>

#include "absl/strings/ascii.h"

namespace capstan {

static_assert(NAME_MAX == 255, "kFileNameRule says so");

bool IsFileName(absl::string_view name) {
  if (name.empty() || name == "." || name == ".." || name.size() > NAME_MAX) return false;
  return std::none_of(name.begin(), name.end(),
                      [](unsigned char c) { return c == '/' || absl::ascii_iscntrl(c); });
}

}  // namespace capstan
