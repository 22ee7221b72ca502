// Job files with comments for the data that `capstan init` was pointed at.
//
// Pure. Thread safety: pure functions.
#ifndef CAPSTAN_SCHEDULER_CLI_INIT_JOB_TEXT_H_
#define CAPSTAN_SCHEDULER_CLI_INIT_JOB_TEXT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "scheduler/cli/init/table_sample.h"

namespace capstan::cli {

struct CsvJob {
  std::string name = "job";
  std::string train;  // Paths as they are to stand in the file.
  std::string test;   // Empty: none.
  std::string label;  // Name of a column, or its number from 1; empty: the last column.
};

// Logistic regression on the table's columns: numbers are scaled to mean 0 and deviation 1, counts
// by their logarithm first; text is a category; what never varies, or names its line, is skipped.
// Labels of two values are clicks; other numbers are predicted (squared loss); of more names the
// most frequent is told from the others.
// Errors: kInvalidArgument  no such label; labels that do not vary; no column that is a feature.
absl::StatusOr<std::string> CsvJobText(const TableSample& table, const CsvJob& job);

// What was found of the images of some folders.
struct ImagesSample {
  int64_t classes = 0;
  int64_t images = 0;        // All of them, about: those of classes that were looked at.
  int64_t least_height = 0;  // Of the images that were decoded.
  int64_t least_width = 0;
  bool one_size = true;
  bool grey = true;  // No image has a colour.
};

struct ImagesJob {
  std::string name = "job";
  std::string train;  // Folders.
  std::string test;   // Empty: none.
};

// LeNet, or an MLP where images are too small for it; images of several sizes are scaled to squares
// of the least side, of 64 at most.
std::string ImagesJobText(const ImagesSample& images, const ImagesJob& job);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_INIT_JOB_TEXT_H_
