// Early return on error, for functions that return absl::Status or absl::StatusOr.
//
//   CAPSTAN_RETURN_IF_ERROR(file.Write(bytes));
//   CAPSTAN_ASSIGN_OR_RETURN(const Shape shape, InferShape(layer));
#ifndef CAPSTAN_COMMON_STATUS_STATUS_MACROS_H_
#define CAPSTAN_COMMON_STATUS_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define CAPSTAN_RETURN_IF_ERROR(expression)                                                      \
  do {                                                                                           \
    if (absl::Status capstan_status = (expression); !capstan_status.ok()) return capstan_status; \
  } while (false)

#define CAPSTAN_STATUS_CONCAT_(a, b) a##b
#define CAPSTAN_STATUS_CONCAT(a, b) CAPSTAN_STATUS_CONCAT_(a, b)
#define CAPSTAN_ASSIGN_OR_RETURN(declaration, expression)                                    \
  CAPSTAN_ASSIGN_OR_RETURN_(CAPSTAN_STATUS_CONCAT(capstan_statusor_, __LINE__), declaration, \
                            expression)
#define CAPSTAN_ASSIGN_OR_RETURN_(temporary, declaration, expression) \
  auto temporary = (expression);                                      \
  if (!temporary.ok()) return std::move(temporary).status();          \
  declaration = std::move(temporary).value()

#endif  // CAPSTAN_COMMON_STATUS_STATUS_MACROS_H_
