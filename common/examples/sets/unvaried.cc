#include "common/examples/sets/unvaried.h"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/examples/sets/column_ranges.h"
#include "common/random/philox.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

constexpr int64_t kBatchExamples = 4096;
constexpr size_t kNamesMax = 5;  // A message lists at most this many names.

// Hashes the keys and values of each field of an example into one number.
void SignFields(const ExampleView& example, std::vector<uint64_t>* signs) {
  std::fill(signs->begin(), signs->end(), 0);
  for (size_t i = 0; i < example.keys.size(); ++i) {
    uint64_t& sign = (*signs)[static_cast<size_t>(example.fields[i])];
    sign = MixKey(MixKey(sign, example.keys[i]), std::bit_cast<uint32_t>(example.values[i]));
  }
}

// Finds the label, dense columns and fields that have had only one value so far.
class Watch {
 public:
  Watch(int64_t dense_columns, int32_t fields)
      : dense_(static_cast<size_t>(dense_columns), true),
        fields_(static_cast<size_t>(fields), true),
        signs_(static_cast<size_t>(fields)) {}

  void See(const ExampleBatch& batch) {
    for (int64_t i = 0; i < batch.count(); ++i) {
      const ExampleView example = batch.example(i);
      SignFields(example, &signs_);
      if (seen_++ == 0) {
        label_ = example.label;
        dense_values_.assign(example.dense.begin(), example.dense.end());
        first_signs_ = signs_;
        continue;
      }
      same_label_ = same_label_ && example.label == label_;
      for (size_t c = 0; c < dense_.size(); ++c) {
        if (example.dense[c] != dense_values_[c]) dense_[c] = false;
      }
      for (size_t f = 0; f < fields_.size(); ++f) {
        if (signs_[f] != first_signs_[f]) fields_[f] = false;
      }
    }
  }

  bool AllVary() const {
    return !same_label_ && std::count(dense_.begin(), dense_.end(), true) == 0 &&
           std::count(fields_.begin(), fields_.end(), true) == 0;
  }

  Unvaried Result() const {
    Unvaried result{.examples = seen_};
    if (seen_ < 2) return result;
    if (same_label_) result.label = label_;
    for (size_t c = 0; c < dense_.size(); ++c) {
      if (dense_[c]) result.dense.push_back(static_cast<int64_t>(c));
    }
    for (size_t f = 0; f < fields_.size(); ++f) {
      if (fields_[f]) result.fields.push_back(static_cast<int32_t>(f));
    }
    return result;
  }

 private:
  int64_t seen_ = 0;
  bool same_label_ = true;
  float label_ = 0;
  std::vector<float> dense_values_;
  std::vector<bool> dense_, fields_;
  std::vector<uint64_t> signs_, first_signs_;
};

// Returns the number and name of each dense column of a line, or of each column that is a field.
std::vector<std::string> ColumnNames(const v1::Data& data, bool dense) {
  std::vector<std::string> names;
  std::vector<const v1::Column*> line;
  if (data.format() != v1::Data::COLUMNS || ColumnsOfLine(data.columns(), &line)) return names;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == nullptr || line[i]->kind() == v1::Column::LABEL ||
        line[i]->kind() == v1::Column::SKIP || (line[i]->kind() == v1::Column::DENSE) != dense) {
      continue;
    }
    const std::string& name = line[i]->name();
    names.push_back(absl::StrCat("column ", i + 1, name.empty() ? "" : " (" + name + ")"));
  }
  return names;
}

template <typename Index>
void Warn(const std::vector<Index>& indices, const std::vector<std::string>& names,
          const char* what, const std::string& head, std::vector<std::string>* warnings) {
  if (indices.empty()) return;
  std::vector<std::string> told;
  for (const Index index : indices) {
    const auto at = static_cast<size_t>(index);
    told.push_back(at < names.size() ? names[at] : absl::StrCat(what, " ", index + 1));
    if (told.size() == kNamesMax) break;
  }
  std::string all = absl::StrJoin(told, ", ");
  if (told.size() < indices.size()) {
    absl::StrAppend(&all, " and ", indices.size() - told.size(), " more");
  }
  warnings->push_back(absl::StrCat(head, all, indices.size() == 1 ? " never varies" : " never vary",
                                   ": the model can learn nothing from that"));
}

}  // namespace

absl::StatusOr<Unvaried> FindUnvaried(ExampleSet& set, int64_t examples_max) {
  Watch watch(set.dense_columns(), set.field_count());
  ExampleBatch batch(set.dense_columns());
  const int64_t end = std::min(examples_max, set.count());
  for (int64_t begin = 0; begin < end && !watch.AllVary(); begin += kBatchExamples) {
    batch.Clear();
    CAPSTAN_RETURN_IF_ERROR(set.Append({begin, std::min(begin + kBatchExamples, end)}, &batch));
    watch.See(batch);
  }
  return watch.Result();
}

std::vector<std::string> UnvariedWarnings(const v1::Data& data, const std::string& split,
                                          const Unvaried& unvaried) {
  std::vector<std::string> warnings;
  const v1::Columns& columns = data.columns();
  const bool labelled =
      data.format() != v1::Data::TEXT &&
      (data.format() != v1::Data::COLUMNS ||
       std::any_of(columns.columns().begin(), columns.columns().end(),
                   [](const auto& column) { return column.kind() == v1::Column::LABEL; }));
  const std::string head = absl::StrCat(split, ": in ", unvaried.examples, " examples ");
  if (labelled && unvaried.label.has_value()) {
    warnings.push_back(absl::StrCat(head, "every label is ", *unvaried.label,
                                    ": is it the column and the value that you mean?"));
  }
  Warn(unvaried.dense, ColumnNames(data, /*dense=*/true), "dense column", head, &warnings);
  Warn(unvaried.fields, ColumnNames(data, /*dense=*/false), "field", head, &warnings);
  return warnings;
}

}  // namespace capstan
