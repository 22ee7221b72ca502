// PlanStore: which of the plans that libraries offer were found to be the fastest, kept in a file,
// so that the next process need not time them again.
//
// A file is of one origin: a card and the versions of the libraries. Its name is made of that, so
// that others in the folder do no harm; text, one plan a line:
//
//   capstan plans 1
//   NVIDIA H100 80GB HBM3 (9.0), cuDNN 91900, cuBLASLt 130000
//   <key> TAB <plan>                 in the order of the keys
//   checksum <16 hexadecimal digits: FNV-1a, 64 bits, of all lines before>
//
// A file that is damaged, or of another origin, is ignored and written anew. Processes that share a
// folder keep what others have written, but for what two of them write in the same moment.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_KERNELS_CUDA_PLAN_STORE_H_
#define CAPSTAN_KERNELS_CUDA_PLAN_STORE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace capstan::kernels::cuda {

using KeptPlans = absl::btree_map<std::string, std::string>;  // By key.

inline constexpr int64_t kPlansMax = 4096;             // Of one file.
inline constexpr int64_t kPlanTextMax = 512;           // Bytes of a key, and of a plan.
inline constexpr int64_t kPlanFileBytesMax = 1 << 23;  // More than so many plans have.

// REQUIRES: IsPlanText of the origin, and of all keys and plans.
std::string EncodePlans(absl::string_view origin, const KeptPlans& plans);
// Errors: kDataLoss            damaged, or of another version; says where.
//         kFailedPrecondition  of another origin; names both.
absl::StatusOr<KeptPlans> DecodePlans(absl::string_view text, absl::string_view origin);

// Whether it can be kept: one line without tabs, of 1 to kPlanTextMax bytes.
bool IsPlanText(absl::string_view text);

class PlanStore {
 public:
  // Reads what there is in `folder`. REQUIRES: IsPlanText(origin).
  //   say  may be null; told why a file is ignored, or cannot be written
  PlanStore(const std::string& folder, const std::string& origin,
            std::function<void(const std::string&)> say);

  std::optional<std::string> Find(const std::string& key) const;
  // Keeps it, here and in the file. What is no plan text is not kept, nor more than kPlansMax.
  void Add(const std::string& key, const std::string& plan);

  // Appends what was measured of the candidates for `key` to a file beside that of the plans, which
  // nobody reads but people: lines of key, name and what was found, with tabs between them.
  // `names` and `found` are of one size.
  void Note(const std::string& key, const std::vector<std::string>& names,
            const std::vector<std::string>& found) const;

  const std::string& file() const { return file_; }

 private:
  // What the file holds; none where it is not there or of no use.
  KeptPlans Read();
  // Tells it, but not twice in a row.
  KeptPlans Ignore(const absl::Status& why);
  absl::Status Write() const;
  void Say(const absl::Status& status) const;

  const std::string folder_, origin_, file_;
  const std::function<void(const std::string&)> say_;
  std::string ignored_;  // Why the file was ignored, as it was told.
  KeptPlans plans_;
  bool told_ = false;  // That the file cannot be written.
};

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_PLAN_STORE_H_
