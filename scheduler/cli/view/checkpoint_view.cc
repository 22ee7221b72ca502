#include "scheduler/cli/view/checkpoint_view.h"

#include "absl/strings/str_cat.h"
#include "scheduler/cli/view/text/format.h"
#include "scheduler/cli/view/text/text_table.h"

namespace capstan::cli {

std::string CheckpointTable(const CheckpointListOutput& list) {
  if (list.checkpoints_size() == 0) return "No checkpoints.\n";
  using Align = TextTable::Align;
  TextTable table({{"CHECKPOINT", Align::kRight},
                   {"STATE"},
                   {"KIND"},
                   {"JOB"},
                   {"EPOCH", Align::kRight},
                   {"ITERATION", Align::kRight},
                   {"SAVED"},
                   {"SHARDS", Align::kRight},
                   {"SIZE", Align::kRight},
                   {"PATH"}});
  std::string details;
  for (const CheckpointOutput& checkpoint : list.checkpoints()) {
    const bool known = !checkpoint.job_id().empty();
    const auto show = [&](const std::string& cell) { return known ? cell : ""; };
    const bool full = checkpoint.rests_on() == checkpoint.checkpoint_id();
    table.AddRow({absl::StrCat(checkpoint.checkpoint_id()), checkpoint.state(),
                  show(full ? "full" : absl::StrCat("incremental on ", checkpoint.rests_on())),
                  checkpoint.job_id(), show(FormatCount(checkpoint.epoch())),
                  show(FormatCount(checkpoint.iteration())),
                  show(TimeText(checkpoint.saved_unix_ms())),
                  show(FormatCount(checkpoint.shards())), show(FormatBytes(checkpoint.bytes())),
                  checkpoint.path()});
    if (!checkpoint.detail().empty()) {
      absl::StrAppend(&details, "checkpoint ", checkpoint.checkpoint_id(),
                      " is damaged: ", Printable(checkpoint.detail()), "\n");
    }
  }
  return absl::StrCat(table.ToString(), details);
}

}  // namespace capstan::cli
