// TextTable: formats rows under headings as padded columns, for terminals and pipes.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SCHEDULER_CLI_VIEW_TEXT_TEXT_TABLE_H_
#define CAPSTAN_SCHEDULER_CLI_VIEW_TEXT_TEXT_TABLE_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace capstan::cli {

class TextTable {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string heading;
    Align align = Align::kLeft;
  };

  explicit TextTable(std::vector<Column> columns);

  // REQUIRES: as many cells as columns. An empty cell is shown as "-". Cells are made
  // Printable.
  void AddRow(std::vector<std::string> cells);

  bool empty() const { return rows_.empty(); }

  // Returns the headings, then the rows, with two spaces between columns and none at the end of a
  // line. Width is counted in UTF-8 characters.
  std::string ToString() const;

 private:
  const std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// Same as capstan::Printable(), with spaces in place of newlines and tabs.
std::string Printable(std::string text);

// Appends the line "name       value" after `indent`; nothing if the value is empty.
void AddField(std::string* text, absl::string_view name, const std::string& value,
              absl::string_view indent = "");

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_VIEW_TEXT_TEXT_TABLE_H_
