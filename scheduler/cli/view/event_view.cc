#include "scheduler/cli/view/event_view.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "scheduler/cli/view/text/format.h"
#include "scheduler/cli/view/text/text_table.h"

namespace capstan::cli {

std::string EventName(v1::JobEvent::Kind kind) {
  if (!v1::JobEvent::Kind_IsValid(kind)) return absl::StrCat("event ", static_cast<int>(kind));
  std::string name = absl::AsciiStrToLower(v1::JobEvent::Kind_Name(kind));
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

std::string EventTable(const v1::JobStatus& job) {
  if (job.events_size() == 0) return "";
  TextTable table(
      {{"TIME"}, {"NODE"}, {"EVENT"}, {"TIMES", TextTable::Align::kRight}, {"WHAT HAPPENED"}});
  for (const v1::JobEvent& event : job.events()) {
    table.AddRow({TimeText(event.unix_ms()), event.node_id(), EventName(event.kind()),
                  absl::StrCat(event.count()), event.text()});
  }
  std::string text = table.ToString();
  if (job.events_forgotten() > 0) {
    absl::StrAppend(&text, FormatCount(job.events_forgotten()), " earlier events are not kept\n");
  }
  return text;
}

std::string EventLine(const v1::JobEvent& event) {
  const std::string time =
      absl::FormatTime("%H:%M:%S", absl::FromUnixMillis(event.unix_ms()), absl::LocalTimeZone());
  const std::string node = event.node_id().empty() ? "" : absl::StrCat("  ", event.node_id());
  return Printable(absl::StrCat(time, node, "  ", EventName(event.kind()), ": ", event.text()));
}

}  // namespace capstan::cli
