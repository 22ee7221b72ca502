#include "common/checkpoint/row_pieces.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

constexpr size_t kStampBytes = sizeof(uint32_t);

class Joined {
 public:
  explicit Joined(int state_parts) : state_(static_cast<size_t>(state_parts)) {}

  absl::Status Add(const v1::ShardSnapshot& piece) {
    const size_t stamps = piece.bucket().stamps().size();
    const size_t keys = stamps / kStampBytes * kKeyBytes;
    if (stamps % kStampBytes != 0 || piece.values().size() < keys ||
        piece.optimizer_state_size() != static_cast<int>(state_.size())) {
      return absl::DataLossError(absl::StrCat(stamps, " bytes of stamps, ", piece.values().size(),
                                              " of keys and rows, ", piece.optimizer_state_size(),
                                              " parts of state: expected those of rows with ",
                                              state_.size(), " parts of state"));
    }
    const absl::string_view values = piece.values();
    keys_.append(values.data(), keys);
    weights_.append(values.data() + keys, values.size() - keys);
    for (size_t i = 0; i < state_.size(); ++i)
      state_[i] += piece.optimizer_state(static_cast<int>(i));
    stamps_ += piece.bucket().stamps();
    return absl::OkStatus();
  }

  void MoveTo(v1::ShardSnapshot* snapshot) {
    keys_ += weights_;
    *snapshot->mutable_values() = std::move(keys_);
    snapshot->clear_optimizer_state();
    for (std::string& part : state_) *snapshot->add_optimizer_state() = std::move(part);
    *snapshot->mutable_bucket()->mutable_stamps() = std::move(stamps_);
    snapshot->clear_pieces();
  }

 private:
  std::string keys_;
  std::string weights_;
  std::vector<std::string> state_;
  std::string stamps_;
};

}  // namespace

absl::Status JoinRowPieces(v1::ShardSnapshot* snapshot) {
  snapshot->clear_rows_to_come();
  if (snapshot->pieces_size() == 0) return absl::OkStatus();
  Joined joined(snapshot->pieces(0).optimizer_state_size());
  if (snapshot->optimizer_state_size() > 0) {
    CAPSTAN_RETURN_IF_ERROR(Annotate(joined.Add(*snapshot), "the rows before all pieces"));
  }
  for (int i = 0; i < snapshot->pieces_size(); ++i) {
    CAPSTAN_RETURN_IF_ERROR(Annotate(joined.Add(snapshot->pieces(i)), absl::StrCat("piece ", i)));
    v1::ShardSnapshot().Swap(snapshot->mutable_pieces(i));  // This frees the piece's memory.
  }
  joined.MoveTo(snapshot);
  return absl::OkStatus();
}

}  // namespace capstan
