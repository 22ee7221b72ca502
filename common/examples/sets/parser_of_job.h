// Makes parsers and click logs from a job file's description of its examples.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_EXAMPLES_SETS_PARSER_OF_JOB_H_
#define CAPSTAN_COMMON_EXAMPLES_SETS_PARSER_OF_JOB_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/examples/click_log.h"
#include "common/examples/parsers/line_parser.h"
#include "proto/job.pb.h"

namespace capstan {

// Returns whether the format is one of examples, which model.sparse trains on.
bool IsExampleFormat(v1::Data::Format format);

// The parser of the format's lines.
// Errors: kInvalidArgument  a format without lines (images, CLICK_LOG), or options that its parser
//                           refuses; the message begins with the field, "data.columns".
absl::StatusOr<std::unique_ptr<LineParser>> MakeLineParser(const v1::Data& data);

// Errors: kInvalidArgument  as ClickLog::Create; the message begins with "data.click_log".
absl::StatusOr<ClickLog> MakeClickLog(const v1::ClickLog& log);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_EXAMPLES_SETS_PARSER_OF_JOB_H_
