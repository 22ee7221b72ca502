#include "common/job/check/check_examples.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/examples/sets/example_set.h"
#include "common/examples/sets/unvaried.h"
#include "common/job/fields/field_checker.h"
#include "common/model/tables.h"
#include "common/sparse_models/model_of_job.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

constexpr int64_t kExamplesLookedAt = 1'000'000;  // Warnings look at this many of each split.

// Returns a diagnostic about the file of the split that begins `message`, else about the field of
// `data` that begins it, else about the whole split.
Diagnostic Describe(const v1::Split& split, const std::string& field, const std::string& message) {
  for (int i = 0; i < split.files_size(); ++i) {
    if (absl::StartsWith(message, absl::StrCat(split.files(i), ":"))) {
      return {absl::StrCat(field, ".files[", i, "]"), "", "", message};
    }
  }
  for (const char* const part : {"data.columns", "data.click_log"}) {
    absl::string_view rest = message;
    if (!absl::ConsumePrefix(&rest, part)) continue;
    const size_t end = rest.find(": ");
    if (end == absl::string_view::npos) break;
    return {absl::StrCat(part, rest.substr(0, end)), "", "", std::string(rest.substr(end + 2))};
  }
  return {split.files_size() > 0 ? absl::StrCat(field, ".files") : field, "", "", message};
}

absl::StatusOr<std::unique_ptr<ExampleSet>> CountAndOpen(const v1::Data& data, v1::Split split,
                                                         std::vector<int64_t>* blocks) {
  CAPSTAN_ASSIGN_OR_RETURN(*blocks, CountBlocks(data, split));
  split.mutable_block_examples()->Assign(blocks->begin(), blocks->end());
  CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<ExampleSet> set, ExampleSet::Open(data, split));
  // Tasks compare the number to notice that files that they hold in memory have changed.
  if (blocks->empty() && data.format() != v1::Data::CLICK_LOG) *blocks = {set->count()};
  return set;
}

std::unique_ptr<ExampleSet> Open(const v1::Data& data, const v1::Split& split,
                                 const std::string& field, std::vector<int64_t>* blocks,
                                 std::vector<Diagnostic>* diagnostics) {
  absl::StatusOr<std::unique_ptr<ExampleSet>> set = CountAndOpen(data, split, blocks);
  if (set.ok()) return *std::move(set);
  diagnostics->push_back(Describe(split, field, std::string(set.status().message())));
  return nullptr;
}

// Warns about what does not vary in a split. A click log is generated as it is meant to be, so it
// gets no warning.
void WarnOf(const v1::Data& data, const std::string& field, ExampleSet& set, JobCheck* result) {
  if (data.format() == v1::Data::CLICK_LOG) return;
  const absl::StatusOr<Unvaried> unvaried = FindUnvaried(set, kExamplesLookedAt);
  if (!unvaried.ok()) {
    result->diagnostics.push_back({field, "", "", std::string(unvaried.status().message())});
    return;
  }
  for (std::string& warning : UnvariedWarnings(data, field, *unvaried)) {
    result->warnings.push_back(std::move(warning));
  }
}

}  // namespace

void CheckRowTables(const std::vector<v1::TableSpec>& tables, const std::string& field,
                    std::vector<Diagnostic>* diagnostics) {
  for (const v1::TableSpec& table : tables) {
    const int64_t memory = table.sparse().memory_bytes();
    const int64_t least = SparseMemoryMin(table.sparse());
    if (memory > 0 && memory < least) {
      FieldChecker(field, diagnostics)
          .Wrong("memory_mib", absl::StrCat(memory >> 20),
                 absl::StrCat("at least ", (least + (1 << 20) - 1) >> 20, ", some rows of ",
                              table.sparse().dim(), " floats in each of ", table.sparse().buckets(),
                              " buckets"));
      continue;
    }
    const absl::Status status = ValidateTable(table);
    if (!status.ok()) diagnostics->push_back({field, "", "", std::string(status.message())});
  }
}

JobCheck CheckExamples(const v1::JobSpec& spec) {
  JobCheck result;
  const v1::Data& data = spec.data();
  const auto train =
      Open(data, data.train(), "data.train", &result.train_blocks, &result.diagnostics);
  if (data.has_test()) {
    const auto test =
        Open(data, data.test(), "data.test", &result.test_blocks, &result.diagnostics);
    if (test != nullptr) result.test_count = test->count();
    if (test != nullptr) WarnOf(data, "data.test", *test, &result);
  }
  if (data.has_validation()) {
    const auto validation = Open(data, data.validation(), "data.validation",
                                 &result.validation_blocks, &result.diagnostics);
    if (validation != nullptr) result.validation_count = validation->count();
    if (validation != nullptr) WarnOf(data, "data.validation", *validation, &result);
  }
  if (!result.diagnostics.empty()) return result;
  WarnOf(data, "data.train", *train, &result);
  result.train_count = train->count();
  FieldChecker check("training", &result.diagnostics);
  if (spec.training().batch_size() > train->count()) {
    check.Wrong("batch_size", absl::StrCat(spec.training().batch_size()),
                absl::StrCat("at most ", train->count(), ", the number of training examples"));
    return result;
  }
  const auto model = MakeSparseModel(spec.model().sparse(), *train);
  if (!model.ok()) {
    result.diagnostics.push_back({"model.sparse", "", "", std::string(model.status().message())});
    return result;
  }
  result.tables = MakeSparseTables(spec.model().sparse(), (*model)->shape());
  CheckRowTables(result.tables, "model.sparse.rows", &result.diagnostics);
  return result;
}

}  // namespace capstan
