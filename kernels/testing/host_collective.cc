#include "kernels/testing/host_collective.h"

#include <algorithm>

#include "kernels/tree_sum.h"

namespace capstan::kernels {

HostCollective::HostCollective(CollectiveKind kind, size_t members, int64_t count)
    : kind_(kind), members_(members), count_(count), sent_(members) {}

bool HostCollective::Sends(size_t member) const {
  return kind_ != CollectiveKind::kBroadcast || member == 0;
}

bool HostCollective::Receives(size_t member) const {
  if (kind_ == CollectiveKind::kBroadcast) return member != 0;
  return kind_ != CollectiveKind::kReduce || member == 0;
}

int64_t HostCollective::sent_count() const {
  const bool parts = kind_ == CollectiveKind::kReduceScatter;
  return parts ? static_cast<int64_t>(members_) * count_ : count_;
}

int64_t HostCollective::received_count() const {
  const bool parts = kind_ == CollectiveKind::kAllGather;
  return parts ? static_cast<int64_t>(members_) * count_ : count_;
}

void HostCollective::Send(size_t member, const float* values) {
  sent_[member].assign(values, values + sent_count());
}

void HostCollective::Receive(size_t member, float* values) const {
  if (kind_ == CollectiveKind::kBroadcast) {
    std::copy(sent_[0].begin(), sent_[0].end(), values);
  } else if (kind_ == CollectiveKind::kAllGather) {
    for (const std::vector<float>& part : sent_) {
      values = std::copy(part.begin(), part.end(), values);
    }
  } else {
    std::vector<std::vector<float>> arrays = sent_;
    TreeSum(arrays);
    const bool part = kind_ == CollectiveKind::kReduceScatter;
    std::copy_n(arrays[0].begin() + (part ? static_cast<int64_t>(member) * count_ : 0), count_,
                values);
  }
}

}  // namespace capstan::kernels
