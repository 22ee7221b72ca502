// Files of a test: where it may write them, and what they hold.
//
// Thread safety: thread-compatible. Each fails the test when the system refuses.
#ifndef CAPSTAN_COMMON_TESTING_TEST_PATHS_H_
#define CAPSTAN_COMMON_TESTING_TEST_PATHS_H_

#include <string>

namespace capstan::testing {

// The path of `name` in the folder that Bazel makes for one run of a test (TEST_TMPDIR).
std::string TestPath(const std::string& name);

// All bytes of a file.
std::string ReadFile(const std::string& path);

}  // namespace capstan::testing

#endif  // CAPSTAN_COMMON_TESTING_TEST_PATHS_H_
