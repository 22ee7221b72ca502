// Status matchers for Catch2.
//
//   REQUIRE_OK(status_or_statusor);
//   CHECK_STATUS(call(), absl::StatusCode::kInvalidArgument, "expected 3 keys");
//   REQUIRE_OK_AND_ASSIGN(auto value, Parse(text));   // declares `value`
//
// CHECK_STATUS checks the code and that the message contains the given text.
#ifndef CAPSTAN_COMMON_TESTING_STATUS_MATCHERS_H_
#define CAPSTAN_COMMON_TESTING_STATUS_MATCHERS_H_

#include <catch2/catch.hpp>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace capstan::testing {

inline const absl::Status& ToStatus(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& ToStatus(const absl::StatusOr<T>& value) {
  return value.status();
}

}  // namespace capstan::testing

#define REQUIRE_OK(expression)                                       \
  do {                                                               \
    const auto& require_ok_value = (expression);                     \
    INFO(::capstan::testing::ToStatus(require_ok_value).ToString()); \
    REQUIRE(::capstan::testing::ToStatus(require_ok_value).ok());    \
  } while (false)

#define CHECK_STATUS(expression, expected_code, expected_text)                          \
  do {                                                                                  \
    const auto& check_status_value = (expression);                                      \
    const absl::Status check_status = ::capstan::testing::ToStatus(check_status_value); \
    INFO(check_status.ToString());                                                      \
    CHECK(check_status.code() == (expected_code));                                      \
    CHECK_THAT(std::string(check_status.message()), ::Catch::Contains(expected_text));  \
  } while (false)

#define CAPSTAN_TESTING_CONCAT_(a, b) a##b
#define CAPSTAN_TESTING_CONCAT(a, b) CAPSTAN_TESTING_CONCAT_(a, b)
#define REQUIRE_OK_AND_ASSIGN(declaration, expression) \
  REQUIRE_OK_AND_ASSIGN_(CAPSTAN_TESTING_CONCAT(statusor_, __LINE__), declaration, expression)
#define REQUIRE_OK_AND_ASSIGN_(temporary, declaration, expression) \
  auto temporary = (expression);                                   \
  REQUIRE_OK(temporary);                                           \
  declaration = std::move(temporary).value()

#endif  // CAPSTAN_COMMON_TESTING_STATUS_MATCHERS_H_
