#include "tests/simulation/checkers/reference_bits.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "tests/simulation/checkers/reference_trainer.h"

namespace capstan::sim {

void ReferenceBits::Exported(const TaskKey&, const std::vector<std::vector<float>>& tables,
                             const std::map<TableId, Version>& versions) {
  const ReferenceResult reference = TrainReference(*workload_);
  for (size_t t = 0; t < tables.size(); ++t) {
    const auto version = versions.find(TableId(static_cast<int32_t>(t)));
    if (version == versions.end() || version->second.value() != reference.iterations) {
      Fail(absl::StrCat("reference: table ", t, " was exported at version ",
                        version == versions.end() ? -1 : version->second.value(), ", expected ",
                        reference.iterations));
    }
    for (size_t i = 0; i < tables[t].size(); ++i) {
      if (std::memcmp(&tables[t][i], &reference.tables[t][i], sizeof(float)) == 0) continue;
      Fail(absl::StrCat("reference: element ", i, " of table ", t, " is ", tables[t][i],
                        ", expected the bits of ", reference.tables[t][i]));
    }
  }
}

}  // namespace capstan::sim
