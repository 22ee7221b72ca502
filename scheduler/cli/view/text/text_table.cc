#include "scheduler/cli/view/text/text_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/observability/printable.h"

namespace capstan::cli {
namespace {

// Returns the number of UTF-8 characters: continuation bytes do not count.
size_t Width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

}  // namespace

std::string Printable(std::string text) {
  for (char& c : text) {
    if (absl::ascii_isspace(static_cast<unsigned char>(c))) c = ' ';
  }
  return capstan::Printable(text, Lines::kOne);
}

void AddField(std::string* text, absl::string_view name, const std::string& value,
              absl::string_view indent) {
  if (value.empty()) return;
  absl::StrAppend(text, indent, absl::StrFormat("%-11s", name), Printable(value), "\n");
}

TextTable::TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

void TextTable::AddRow(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  for (std::string& cell : cells) cell = cell.empty() ? "-" : Printable(std::move(cell));
  rows_.push_back(std::move(cells));
}

std::string TextTable::ToString() const {
  std::vector<size_t> widths;
  for (const Column& column : columns_) widths.push_back(Width(column.heading));
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  }
  std::string text;
  const auto add_line = [&](auto&& cell) {
    std::string line;
    for (size_t i = 0; i < columns_.size(); ++i) {
      const std::string& content = cell(i);
      const std::string padding(widths[i] - Width(content), ' ');
      if (i > 0) line += "  ";
      line += columns_[i].align == Align::kRight ? padding + content : content + padding;
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  };
  add_line([&](size_t i) -> const std::string& { return columns_[i].heading; });
  for (const auto& row : rows_) {
    add_line([&](size_t i) -> const std::string& { return row[i]; });
  }
  return text;
}

}  // namespace capstan::cli
