#include "common/examples/sets/parser_of_job.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/examples/parsers/columns_parser.h"
#include "common/examples/parsers/criteo_parser.h"
#include "common/examples/parsers/svmlight_parser.h"
#include "common/examples/parsers/text_parser.h"
#include "common/examples/sets/column_ranges.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

ColumnsParser::Kind KindOf(v1::Column::Kind kind) {
  switch (kind) {
    case v1::Column::LABEL:
      return ColumnsParser::Kind::kLabel;
    case v1::Column::DENSE:
      return ColumnsParser::Kind::kDense;
    case v1::Column::CATEGORY:
      return ColumnsParser::Kind::kCategory;
    case v1::Column::ID:
      return ColumnsParser::Kind::kId;
    case v1::Column::BUCKET:
      return ColumnsParser::Kind::kBucket;
    default:
      return ColumnsParser::Kind::kSkip;
  }
}

ColumnsParser::Column ColumnOf(const v1::Column& spec) {
  ColumnsParser::Column column;
  column.kind = KindOf(spec.kind());
  column.name = spec.name();
  if (spec.has_missing()) column.missing = spec.missing();
  column.positive.assign(spec.label().positive().begin(), spec.label().positive().end());
  column.classes.assign(spec.label().classes().begin(), spec.label().classes().end());
  column.log1p = spec.log1p();
  column.subtract = spec.subtract();
  if (spec.has_divide()) column.divide = spec.divide();
  column.boundaries.assign(spec.boundaries().begin(), spec.boundaries().end());
  return column;
}

absl::StatusOr<std::unique_ptr<LineParser>> MakeColumnsParser(const v1::Data& data) {
  const v1::Columns& columns = data.columns();
  ColumnsParser::Options options{.header = columns.header(),
                                 .hash_buckets = data.examples().hash_buckets()};
  if (columns.has_quotes()) options.quotes = columns.quotes();
  if (columns.has_separator()) {
    if (columns.separator().size() != 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "data.columns.separator: got ", Quoted(columns.separator()), ", expected one byte"));
    }
    options.separator = columns.separator()[0];
  }
  std::vector<const v1::Column*> line;
  if (const auto error = ColumnsOfLine(columns, &line); error.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("data.columns.columns[", error->index,
                                                   "].range: got ", error->found, ", expected ",
                                                   error->expected));
  }
  for (const v1::Column* column : line) {
    options.columns.push_back(column == nullptr ? ColumnsParser::Column() : ColumnOf(*column));
  }
  absl::StatusOr<std::unique_ptr<ColumnsParser>> parser = ColumnsParser::Create(std::move(options));
  if (!parser.ok()) return Annotate(parser.status(), "data.columns");
  return *std::move(parser);
}

}  // namespace

bool IsExampleFormat(v1::Data::Format format) {
  switch (format) {
    case v1::Data::SVMLIGHT:
    case v1::Data::CRITEO:
    case v1::Data::COLUMNS:
    case v1::Data::TEXT:
    case v1::Data::CLICK_LOG:
      return true;
    default:
      return false;
  }
}

absl::StatusOr<std::unique_ptr<LineParser>> MakeLineParser(const v1::Data& data) {
  const uint64_t hash_buckets = data.examples().hash_buckets();
  switch (data.format()) {
    case v1::Data::SVMLIGHT:
      return std::make_unique<SvmlightParser>();
    case v1::Data::CRITEO:
      return std::make_unique<CriteoParser>(CriteoParser::Options{.hash_buckets = hash_buckets});
    case v1::Data::COLUMNS:
      return MakeColumnsParser(data);
    case v1::Data::TEXT: {
      TextParser::Options options{.hash_buckets = hash_buckets};
      if (data.text().has_words_max()) options.words_max = data.text().words_max();
      return std::make_unique<TextParser>(options);
    }
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          "data.format: ", v1::Data::Format_Name(data.format()), " has no lines to parse"));
  }
}

absl::StatusOr<ClickLog> MakeClickLog(const v1::ClickLog& log) {
  ClickLog::Options options;
  if (log.has_seed()) options.seed = log.seed();
  if (log.has_fields()) options.fields = log.fields();
  if (log.has_keys_per_field()) options.keys_per_field = log.keys_per_field();
  if (log.has_zipf_exponent()) options.zipf_exponent = log.zipf_exponent();
  options.dense_columns = log.dense_columns();
  if (log.has_rank()) options.rank = log.rank();
  if (log.has_bias()) options.bias = log.bias();
  if (log.has_linear_stddev()) options.linear_stddev = log.linear_stddev();
  if (log.has_interaction_stddev()) options.interaction_stddev = log.interaction_stddev();
  absl::StatusOr<ClickLog> made = ClickLog::Create(options);
  if (!made.ok()) return Annotate(made.status(), "data.click_log");
  return made;
}

}  // namespace capstan
