#include "common/examples/testing/parser_checks.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/types/span.h"
#include "common/random/philox.h"
#include "common/testing/status_matchers.h"

namespace capstan::testing {
namespace {

constexpr int kRandomLines = 20'000;

template <typename T>
bool SameBits(absl::Span<const T> a, absl::Span<const T> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// Keeps the parsed examples in its batch, so that most lines meet a batch that is not empty.
class Survivor {
 public:
  explicit Survivor(LineParser& parser)
      : parser_(parser), batch_(parser.dense_columns()), before_(parser.dense_columns()) {}

  void Try(const std::string& line) {
    if (batch_.count() > 20) batch_.Clear();
    before_.Clear();
    before_.Append(batch_, 0, batch_.count());
    const absl::Status status = parser_.Parse(line, &batch_);
    INFO("line '" << absl::CHexEscape(line) << "': " << status.ToString());
    CheckInvariants(batch_);
    if (!status.ok()) {
      REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
      REQUIRE_FALSE(status.message().empty());
      REQUIRE(SameExamples(batch_, before_));
    }
    REQUIRE(batch_.count() >= before_.count());
  }

 private:
  LineParser& parser_;
  ExampleBatch batch_;
  ExampleBatch before_;
};

void TryVariants(Survivor& survivor, const std::string& seed) {
  // Some of these bytes belong to formats, others do not. The zero at the end is one of them.
  constexpr char kBytes[] = " \t\n\r\"#:,+-.0519aefxnXq\x7f\x80\xff";
  for (size_t i = 0; i <= seed.size(); ++i) {
    survivor.Try(seed.substr(0, i));
    survivor.Try(seed.substr(i));
    for (const char byte : kBytes) {
      survivor.Try(seed.substr(0, i) + byte + seed.substr(i));
      if (i < seed.size()) survivor.Try(seed.substr(0, i) + byte + seed.substr(i + 1));
    }
    if (i < seed.size()) survivor.Try(seed.substr(0, i) + seed.substr(i + 1));
  }
}

}  // namespace

void CheckInvariants(const ExampleBatch& batch) {
  const absl::Span<const int64_t> rows = batch.row_begin();
  REQUIRE(batch.labels().size() == static_cast<size_t>(batch.count()));
  REQUIRE(rows.size() == static_cast<size_t>(batch.count()) + 1);
  REQUIRE(rows.front() == 0);
  REQUIRE(std::is_sorted(rows.begin(), rows.end()));
  REQUIRE(rows.back() == batch.value_count());
  REQUIRE(batch.keys().size() == static_cast<size_t>(batch.value_count()));
  REQUIRE(batch.values().size() == batch.keys().size());
  REQUIRE(batch.fields().size() == batch.keys().size());
  REQUIRE(batch.dense().size() == static_cast<size_t>(batch.count() * batch.dense_columns()));
}

bool SameExamples(const ExampleBatch& a, const ExampleBatch& b) {
  return SameBits(a.labels(), b.labels()) && SameBits(a.dense(), b.dense()) &&
         SameBits(a.row_begin(), b.row_begin()) && SameBits(a.keys(), b.keys()) &&
         SameBits(a.values(), b.values()) && SameBits(a.fields(), b.fields());
}

void CheckSurvives(LineParser& parser, const std::vector<std::string>& seeds) {
  Survivor survivor(parser);
  for (const std::string& seed : seeds) TryVariants(survivor, seed);
  for (uint64_t i = 0; i < kRandomLines; ++i) {
    std::string line(PhiloxWord(i, 0) % 64, '\0');
    // Even lines consist of random bytes, odd lines of random bytes of a seed.
    const std::string& alphabet = seeds[i % seeds.size()];
    for (size_t j = 0; j < line.size(); ++j) {
      const uint32_t word = PhiloxWord(i, j + 1);
      line[j] = i % 2 == 0 || alphabet.empty() ? static_cast<char>(word)
                                               : alphabet[word % alphabet.size()];
    }
    survivor.Try(line);
  }
}

ExampleBatch ParseLine(LineParser& parser, absl::string_view line) {
  ExampleBatch batch(parser.dense_columns());
  REQUIRE_OK(parser.Parse(line, &batch));
  CheckInvariants(batch);
  return batch;
}

}  // namespace capstan::testing
