// PlanStore: keeps in a file which of the libraries' plans were measured to be the fastest, so that
// the next process need not time them again. Device owns one if CudaOptions::plans_folder is set.
//
// A file belongs to one origin: a card and the versions of the libraries. The file's name is a hash
// of the origin, so files of other origins may be in the same folder. A file is text with one plan
// per line:
//
//   capstan plans 1
//   NVIDIA H100 80GB HBM3 (9.0), cuDNN 91900, cuBLASLt 130000
//   <key> TAB <plan>                 in the order of the keys
//   checksum <16 hexadecimal digits: FNV-1a, 64 bits, of all lines before>
//
// A file that is damaged or belongs to another origin is ignored and later overwritten. Processes
// that share a folder keep each other's plans, except when two of them write at the same moment.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_KERNELS_CUDA_PLANS_PLAN_STORE_H_
#define CAPSTAN_KERNELS_CUDA_PLANS_PLAN_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace capstan::kernels::cuda {

using KeptPlans = std::map<std::string, std::string>;  // Key to plan.

inline constexpr int64_t kPlansMax = 4096;             // Plans in one file.
inline constexpr int64_t kPlanTextMax = 512;           // Bytes of a key, and of a plan.
inline constexpr int64_t kPlanFileBytesMax = 1 << 23;  // More than kPlansMax plans need.

// REQUIRES: IsPlanText of the origin, and of all keys and plans.
std::string EncodePlans(absl::string_view origin, const KeptPlans& plans);
// Errors: kDataLoss            damaged, or of another version; the message names the line.
//         kFailedPrecondition  of another origin; the message names both.
absl::StatusOr<KeptPlans> DecodePlans(absl::string_view text, absl::string_view origin);

// True if the text can be kept: one line without tabs, of 1 to kPlanTextMax bytes.
bool IsPlanText(absl::string_view text);

class PlanStore {
 public:
  // Reads the origin's file in `folder`, if there is one. REQUIRES: IsPlanText(origin).
  //   say  may be null; receives the reason when a file is ignored or cannot be written
  PlanStore(const std::string& folder, const std::string& origin,
            std::function<void(const std::string&)> say);

  std::optional<std::string> Find(const std::string& key) const;
  // Keeps the plan in memory and in the file. Ignores texts that are not IsPlanText, and new keys
  // beyond kPlansMax.
  void Add(const std::string& key, const std::string& plan);

  // Appends the measurements of the candidates for `key` to a second file, for people to read:
  // lines of key, name and finding, separated by tabs. REQUIRES: `names` and `found` have the same
  // size.
  void Note(const std::string& key, const std::vector<std::string>& names,
            const std::vector<std::string>& found) const;

  const std::string& file() const { return file_; }

 private:
  // Returns the plans in the file; empty if the file is missing or ignored.
  KeptPlans Read();
  // Reports why the file is ignored, but not the same reason twice in a row. Returns no plans.
  KeptPlans Ignore(const absl::Status& why);
  absl::Status Write() const;
  void Say(const absl::Status& status) const;

  const std::string folder_, origin_, file_;
  const std::function<void(const std::string&)> say_;
  std::string ignored_;  // The reason that Ignore reported last.
  KeptPlans plans_;
  bool told_ = false;  // True once it has reported that the file cannot be written.
};

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_PLANS_PLAN_STORE_H_
