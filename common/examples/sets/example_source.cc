#include "common/examples/sets/example_source.h"

#include <algorithm>
#include <cassert>

#include "absl/strings/str_cat.h"
#include "common/examples/files/line_position.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"

namespace capstan {

absl::StatusOr<std::unique_ptr<ExampleSource>> ExampleSource::Open(const FileRange& range,
                                                                   LineParser* parser,
                                                                   BadLines* bad_lines,
                                                                   const Options& options) {
  std::unique_ptr<ExampleSource> source(new ExampleSource(range, parser, bad_lines));
  CAPSTAN_ASSIGN_OR_RETURN(source->reader_,
                           LineReader::Open(range, {.line_bytes_max = options.line_bytes_max,
                                                    .window_bytes = parser->window_bytes()}));
  return source;
}

ExampleSource::ExampleSource(const FileRange& range, LineParser* parser, BadLines* bad_lines)
    : range_(range),
      parser_(*parser),
      bad_lines_(*bad_lines),
      header_due_(parser->has_header() && range.begin == 0),
      held_(parser->dense_columns()) {}

absl::Status ExampleSource::Next(int64_t count, ExampleBatch* batch) {
  assert(count >= 1);
  batch->Reset(parser_.dense_columns());
  const absl::Status status = Fill(count, batch);
  if (!status.ok()) batch->Clear();
  return status;
}

absl::Status ExampleSource::Fill(int64_t count, ExampleBatch* batch) {
  const int64_t held = std::min(held_.count() - held_begin_, count);
  batch->Append(held_, held_begin_, held_begin_ + held);
  held_begin_ += held;
  absl::string_view line;
  while (batch->count() < count) {
    CAPSTAN_ASSIGN_OR_RETURN(const bool more, reader_->Next(&line));
    if (!more) return absl::OkStatus();
    CAPSTAN_RETURN_IF_ERROR(ParseLine(line, batch));
  }
  if (batch->count() > count) {
    held_.Clear();
    held_.Append(*batch, count, batch->count());
    held_begin_ = 0;
    batch->Truncate(count);
  }
  return absl::OkStatus();
}

absl::Status ExampleSource::ParseLine(absl::string_view line, ExampleBatch* batch) {
  if (header_due_) {
    header_due_ = false;
    return Annotate(parser_.CheckHeader(line), absl::StrCat(range_.path, ":1"));
  }
  const absl::Status status = parser_.Parse(line, batch);
  if (status.ok()) return bad_lines_.AddGood();
  return bad_lines_.AddBad(range_.path, reader_->position(), status.message());
}

}  // namespace capstan
