// Job text: writes commented job files for the data that the user named to `capstan init`.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_SCHEDULER_CLI_INIT_JOB_TEXT_H_
#define CAPSTAN_SCHEDULER_CLI_INIT_JOB_TEXT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "scheduler/cli/init/table_sample.h"

namespace capstan::cli {

struct CsvJob {
  std::string name = "job";
  std::string train;  // Path for the job file.
  std::string test;   // Path for the job file. Empty: none.
  std::string label;  // Name of a column, or its number from 1. Empty: the last column.
};

// Returns a job that trains logistic regression on the table's columns. Numbers are scaled to mean
// 0 and deviation 1, except skewed counts, which are replaced by their logarithm. Text is a
// category. A column that never varies or that names its line is skipped. Labels with two values
// are clicks; other numbers are predicted (squared loss); if there are more than two names, the
// most frequent one is distinguished from the others.
// Errors: kInvalidArgument  no such label; labels that do not vary; no column that is a feature.
absl::StatusOr<std::string> CsvJobText(const TableSample& table, const CsvJob& job);

// The properties of the images in the folders of classes.
struct ImagesSample {
  int64_t classes = 0;
  int64_t images = 0;        // Number of images in all classes.
  int64_t least_height = 0;  // Least height and width of the decoded images.
  int64_t least_width = 0;
  bool one_size = true;
  bool grey = true;  // No decoded image has a colour.
};

struct ImagesJob {
  std::string name = "job";
  std::string train;  // Folder of the training images.
  std::string test;   // Folder of the test images. Empty: none.
};

// Returns a job that trains LeNet, or an MLP if the images are too small for LeNet. Images of
// several sizes are scaled to squares with the least side, at most 64.
std::string ImagesJobText(const ImagesSample& images, const ImagesJob& job);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_INIT_JOB_TEXT_H_
