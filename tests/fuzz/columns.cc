// Lines of CSV or TSV, by options that the input says, too: the options are refused, or each line
// gives an example, or an error and nothing else (lines.h).
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/examples/parsers/columns_parser.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/lines.h"
#include "tests/fuzz/target.h"

namespace capstan::fuzz {
namespace {

float AnyFloat(Input& input) {
  const uint32_t low = input.Word();
  return std::bit_cast<float>(low | uint32_t{input.Word()} << 16);
}

ColumnsParser::Column AnyColumn(Input& input) {
  ColumnsParser::Column column;
  column.kind = static_cast<ColumnsParser::Kind>(input.Byte() % 6);
  const uint8_t has = input.Byte();  // A bit for each option.
  if (has & 1) column.name = std::string(input.Take(input.Byte() % 8));
  if (has & 2) column.missing = AnyFloat(input);
  if (has & 4) column.positive = {std::string(input.Take(2)), std::string(input.Take(1))};
  if (has & 8) column.classes = {std::string(input.Take(2)), std::string(input.Take(1))};
  if (has & 16) column.log1p = true;
  if (has & 32) column.subtract = AnyFloat(input);
  if (has & 64) column.divide = AnyFloat(input);
  if (has & 128) column.boundaries = {AnyFloat(input), AnyFloat(input)};
  return column;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  ColumnsParser::Options options;
  const uint8_t flags = input.Byte();
  options.quotes = flags & 1;
  options.header = flags & 2;
  options.hash_buckets = flags & 4 ? 1000 : 0;
  options.separator = static_cast<char>(input.Byte());
  for (int i = input.Byte() % 8; i > 0; --i) options.columns.push_back(AnyColumn(input));
  const absl::StatusOr<std::unique_ptr<ColumnsParser>> parser =
      ColumnsParser::Create(std::move(options));
  if (!parser.ok()) {
    FUZZ_CHECK(absl::IsInvalidArgument(parser.status()));
    return 0;
  }
  CheckLines(**parser, input.Rest());
  return 0;
}

}  // namespace capstan::fuzz
