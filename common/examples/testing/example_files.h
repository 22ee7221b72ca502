// Example files: contents for the files of tests; //common/data/testing:test_files writes them.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_EXAMPLES_TESTING_EXAMPLE_FILES_H_
#define CAPSTAN_COMMON_EXAMPLES_TESTING_EXAMPLE_FILES_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "common/data/testing/test_files.h"

namespace capstan::testing {

Bytes ToBytes(absl::string_view text);

// Returns the path of `name` in the folder of real data that CAPSTAN_TEST_DATA names (bazel test
// --test_env=CAPSTAN_TEST_DATA=FOLDER). If the file is missing, returns nothing and prints a line
// that says so: the test is to be skipped.
std::optional<std::string> RealData(const std::string& name);

}  // namespace capstan::testing

#endif  // CAPSTAN_COMMON_EXAMPLES_TESTING_EXAMPLE_FILES_H_
