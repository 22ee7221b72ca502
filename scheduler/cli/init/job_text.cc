#include "scheduler/cli/init/job_text.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/status/status_macros.h"

namespace capstan::cli {
namespace {

constexpr int64_t kBatchSize = 100;
constexpr int64_t kImageBatchSize = 32;
constexpr int64_t kScaledSideMax = 64;
constexpr int64_t kLenetSideMin = 16;  // Two convolutions of 5 x 5 and two poolings leave a pixel.
constexpr size_t kNamesTold = 8;       // Limit in a comment.
// A column of text with a new value on nearly every line is a name of the line.
constexpr int64_t kRowsOfNames = 100;
constexpr double kShareOfNames = 0.9;
// Counts are skewed if the largest is more than this many times their mean. Jobs then use their
// logarithm.
constexpr double kSkewed = 20;

std::string Quote(const std::string& text) { return absl::StrCat("\"", absl::CEscape(text), "\""); }

// Returns a short text, for comments.
std::string Number(double value) { return absl::StrFormat("%.5g", value); }

// Returns as many digits as a float has, for fields.
std::string Float(double value) { return absl::StrFormat("%.9g", value); }

absl::StatusOr<size_t> FindLabel(const TableSample& table, const std::string& label) {
  if (label.empty()) return table.columns.size() - 1;
  for (size_t c = 0; c < table.columns.size(); ++c) {
    if (table.columns[c].name == label) return c;
  }
  size_t number = 0;
  if (absl::SimpleAtoi(label, &number) && number >= 1 && number <= table.columns.size()) {
    return number - 1;
  }
  std::vector<std::string> names;
  for (const ColumnSample& column : table.columns) {
    if (!column.name.empty()) names.push_back(column.name);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--label=", label, ": found no such column, expected 1 to ", table.columns.size(),
      names.empty() ? "" : absl::StrCat(" or one of ", absl::StrJoin(names, ", "))));
}

// Returns "\"a\" 5 times, \"b\" 3 times", in the order of `values`.
std::string ValuesText(const std::vector<std::pair<std::string, int64_t>>& values) {
  std::vector<std::string> told;
  for (const auto& [value, count] : values) {
    if (told.size() == kNamesTold) {
      told.push_back("...");
      break;
    }
    told.push_back(absl::StrCat(Quote(value), " ", count, " times"));
  }
  return absl::StrJoin(told, ", ");
}

struct LabelChoice {
  std::string fields;   // Fields of the label's column.
  std::string comment;  // Meaning of the label's values.
  bool squared = false;
};

absl::StatusOr<LabelChoice> ChooseLabel(const ColumnSample& column, const std::string& name) {
  std::vector<std::pair<std::string, int64_t>> values(column.values.begin(), column.values.end());
  std::stable_sort(values.begin(), values.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  if (values.size() < 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, " is ", values.empty() ? "always empty" : Quote(values[0].first),
        " in every line, expected labels that vary; name another column with --label"));
  }
  if (column.numeric() && values.size() > 2) {
    return LabelChoice{"",
                       absl::StrCat("A number from ", Number(column.least), " to ",
                                    Number(column.largest), "; it is what is predicted."),
                       /*squared=*/true};
  }
  if (column.numeric() && column.least <= 0 && column.largest > 0) {
    return LabelChoice{"", absl::StrCat("1 or more counts as yes: ", ValuesText(values), ".")};
  }
  // The rarer of two values is the positive one. If there are more, the most frequent one is.
  const std::string positive = values.size() == 2 ? values[1].first : values[0].first;
  return LabelChoice{absl::StrCat(" label { positive: ", Quote(positive), " }"),
                     absl::StrCat("Examples have two classes: ", Quote(positive),
                                  ", and all others. Found ", ValuesText(values), ".")};
}

bool NamesItsLine(const ColumnSample& column, int64_t rows) {
  const auto values = static_cast<double>(column.values.size());
  const double of = static_cast<double>(
      std::min<int64_t>(rows - column.empty, static_cast<int64_t>(ColumnSample::kValuesMax)));
  return rows >= kRowsOfNames && values > kShareOfNames * of;
}

// Numbers may be the same, or nearly, though their texts differ. Nothing can be divided by their
// deviation then.
bool NeverVaries(const ColumnSample& column) {
  return column.constant() || (column.numeric() && (column.least == column.largest ||
                                                    static_cast<float>(column.deviation) == 0));
}

// Returns the fields of a feature's column and a comment. Sets `used` if the model uses it.
std::string FeatureText(const ColumnSample& column, int64_t rows, bool* used) {
  if (NeverVaries(column)) return "kind: SKIP }  # Never varies.";
  if (column.numeric()) {
    *used = true;
    const bool count = column.least >= 0 && column.largest > kSkewed * column.mean;
    std::string text = "kind: DENSE";
    if (count) {
      absl::StrAppend(&text, " log1p: true");
    } else {
      absl::StrAppend(&text, " subtract: ", Float(column.mean),
                      " divide: ", Float(column.deviation));
    }
    if (column.empty > 0) absl::StrAppend(&text, " missing: ", Float(column.mean));
    return absl::StrCat(
        text, " }  # ", Number(column.least), " to ", Number(column.largest),
        column.empty > 0 ? absl::StrCat(", empty in ", column.empty, " lines") : "");
  }
  if (NamesItsLine(column, rows)) return "kind: SKIP }  # Another text in nearly every line.";
  *used = true;
  const bool all = column.values.size() < ColumnSample::kValuesMax;
  return absl::StrCat("kind: CATEGORY }  # ", all ? "" : "More than ", column.values.size(),
                      " values.");
}

struct ColumnsText {
  std::string lines;
  bool squared = false;
  double mean = 0;  // Mean of the label.
};

absl::StatusOr<ColumnsText> MakeColumns(const TableSample& table, size_t label) {
  ColumnsText text;
  bool used = false;
  for (size_t c = 0; c < table.columns.size(); ++c) {
    const ColumnSample& column = table.columns[c];
    const std::string name =
        column.name.empty() ? "" : absl::StrCat("name: ", Quote(column.name), " ");
    if (c != label) {
      absl::StrAppend(&text.lines, "    columns { ", name, FeatureText(column, table.rows, &used),
                      "\n");
      continue;
    }
    CAPSTAN_ASSIGN_OR_RETURN(
        const LabelChoice choice,
        ChooseLabel(column, column.name.empty() ? absl::StrCat("column ", c + 1)
                                                : absl::StrCat("column ", Quote(column.name))));
    absl::StrAppend(&text.lines, "    # ", choice.comment, "\n    columns { ", name, "kind: LABEL",
                    choice.fields, " }\n");
    text.squared = choice.squared;
    text.mean = column.mean;
  }
  if (used) return text;
  return absl::InvalidArgumentError(
      absl::StrCat("found no feature among ", table.columns.size(),
                   " columns: those beside the label never vary, or name their line"));
}

}  // namespace

absl::StatusOr<std::string> CsvJobText(const TableSample& table, const CsvJob& job) {
  CAPSTAN_ASSIGN_OR_RETURN(const size_t label, FindLabel(table, job.label));
  CAPSTAN_ASSIGN_OR_RETURN(const ColumnsText columns, MakeColumns(table, label));
  std::string text = absl::StrCat(
      "# Written by capstan init after the first ", table.rows, " lines of the data.\n",
      "# Train: capstan job submit FILE    Every field: proto/job.proto\n\nname: ", Quote(job.name),
      "\n\n# Linear. For interactions of columns: factorization_machine { rank: 8 }, or\n"
      "# deep_fm { rank: 8 hidden: [64, 32] }.\nmodel {\n  sparse {\n    logistic_regression {");
  if (columns.squared) {
    absl::StrAppend(&text, " loss: SQUARED bias: ", Float(columns.mean), " ");
  }
  absl::StrAppend(&text, "}\n    buckets: 8\n  }\n}\n\ndata {\n  format: COLUMNS\n  columns {\n",
                  columns.lines);
  if (table.separator != ',') {
    absl::StrAppend(&text, "    separator: ", Quote(std::string(1, table.separator)), "\n");
  }
  if (table.header) absl::StrAppend(&text, "    header: true\n");
  absl::StrAppend(&text, "  }\n  train { files: ", Quote(job.train), " }\n");
  if (job.test.empty()) {
    absl::StrAppend(&text, "  # Evaluated after each epoch: test { files: \"...\" }\n");
  } else {
    absl::StrAppend(&text, "  test { files: ", Quote(job.test), " }\n");
  }
  absl::StrAppend(&text,
                  "}\n\ntraining {\n  epochs: 5\n  batch_size: ", std::min(kBatchSize, table.rows),
                  "\n}\n\noptimizer {\n  adagrad {}\n  learning_rate: 0.1\n}\n\n"
                  "# A worker may be two batches ahead of the slowest.\n"
                  "consistency { ssp { staleness_bound: 2 } }\n\nresources { workers: 1 }\n");
  return text;
}

std::string ImagesJobText(const ImagesSample& images, const ImagesJob& job) {
  const int64_t least = std::min(images.least_height, images.least_width);
  const int64_t side = std::min(kScaledSideMax, least);
  const int channels = images.grey ? 1 : 3;
  const char* const half = images.grey ? "0.5" : "[0.5, 0.5, 0.5]";
  const bool small = (images.one_size ? least : side) < kLenetSideMin;
  std::string text = absl::StrCat(
      "# Written by capstan init for ", images.images, " images of ", images.classes,
      " classes.\n# Train: capstan job submit FILE    Every field: proto/job.proto\n\nname: ",
      Quote(job.name), "\n\n# Also: resnet20, resnet18, resnet50, vgg16, or layers of your own.\n",
      "model { zoo: ", small ? "\"mlp\"" : "\"lenet\"", " }\n\ndata {\n  format: IMAGE_FOLDER\n",
      "  image_folder {\n");
  if (images.one_size) {
    absl::StrAppend(&text, "    # All images that were looked at are ", images.least_height, " x ",
                    images.least_width, ".\n");
  } else {
    absl::StrAppend(&text, "    # Images have several sizes: all are scaled to this one.\n",
                    "    height: ", side, "\n    width: ", side, "\n");
  }
  absl::StrAppend(&text, "    channels: ", channels, images.grey ? "  # Grey.\n" : "  # RGB.\n",
                  "  }\n  train { images: ", Quote(job.train), " }\n");
  if (job.test.empty()) {
    absl::StrAppend(&text, "  # Evaluated after each epoch: test { images: \"...\" }\n");
  } else {
    absl::StrAppend(&text, "  test { images: ", Quote(job.test), " }\n");
  }
  absl::StrAppend(&text, "  # Where a mirrored image is as good: horizontal_flip: true\n",
                  "  augmentation { mean: ", half, " std: ", half, " }\n}\n\ntraining {\n",
                  "  epochs: 10\n  batch_size: ", std::min(kImageBatchSize, images.images),
                  "\n}\n\noptimizer {\n  adam {}\n  learning_rate: 0.001\n}\n\n",
                  "resources { workers: 1 }\n");
  return text;
}

}  // namespace capstan::cli
