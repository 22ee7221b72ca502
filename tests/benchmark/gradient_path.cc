// How long a gradient takes from pinned memory, where a card has put it, to the messages that bring
// it to servers; against the same in passes of their own, by one thread: to fp32 in the host's
// array, the check for numbers that are not finite, and to halves in the message.
//
//   gradient_path [--elements=25600000] [--threads=2] [--json]
//
// Bytes are those of the gradient in pinned memory, each counted once. Parts and shards have 2^20
// elements, as in training. Needs no card: pinned memory is the host's.
// Exit codes: 0 all went well, 2 something failed.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/command_line/command.h"
#include "common/random/philox.h"
#include "common/status/status_macros.h"
#include "common/wire/number_format.h"
#include "common/wire/tensor_message.h"
#include "tests/benchmark/processor_time.h"
#include "tests/benchmark/report.h"
#include "tests/benchmark/turns.h"
#include "worker/client/messages/message_codec.h"
#include "worker/core/push_pull_session.h"
#include "worker/training/step/gradient_norm.h"
#include "worker/training/step/host_copies.h"

namespace capstan::benchmark {
namespace {

constexpr int64_t kPartElements = 1 << 20;

struct Flags {
  ReportFlags report;
  int64_t elements = 25'600'000;  // ResNet-50's.
  int threads = 2;
};

// A gradient in pinned memory, and the arrays that it goes through.
class Gradient {
 public:
  Gradient(int64_t elements, NumberFormat format) : elements_(elements), format_(format) {
    const auto count = static_cast<size_t>(elements);
    std::vector<float>& values = floats_->emplace_back(count);
    for (size_t i = 0; i < count; ++i) values[i] = ToUnitFloat(PhiloxWord(1, i)) - 0.5f;
    pinned_.resize(count * static_cast<size_t>(BytesOf(format)));
    EncodeNumbers(format, values, pinned_.data());
    if (format != NumberFormat::kFp32) halves_->emplace_back(count);
    formats_ = {{.gradients = format}};
  }

  // Each part is taken out of pinned memory and encoded. Errors: kInternal  it is not finite.
  absl::Status InOnePass(worker::HostCopies& copies) {
    return ForParts([&](const char* from, int64_t begin, int64_t end) {
      void* const to = format_ == NumberFormat::kFp32
                           ? static_cast<void*>((*floats_)[0].data() + begin)
                           : static_cast<void*>((*halves_)[0].data() + begin);
      const bool finite = copies.CopyChecked(format_, from, end - begin, to);
      return finite && EncodedBytes(begin, end, halves_) > 0;
    });
  }
  absl::Status InThreePasses() {
    return ForParts([&](const char* from, int64_t begin, int64_t end) {
      const auto part = absl::MakeSpan((*floats_)[0])
                            .subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
      DecodeNumbers(format_, from, part);
      return std::isfinite(worker::SumOfSquares(part)) && EncodedBytes(begin, end, nullptr) > 0;
    });
  }
  double bytes() const { return static_cast<double>(pinned_.size()); }

 private:
  template <typename Take>
  absl::Status ForParts(const Take& take) const {
    for (int64_t begin = 0; begin < elements_; begin += kPartElements) {
      const int64_t end = std::min(begin + kPartElements, elements_);
      if (!take(pinned_.data() + begin * BytesOf(format_), begin, end)) {
        return absl::InternalError("the gradient is not finite");
      }
    }
    return absl::OkStatus();
  }
  size_t EncodedBytes(int64_t begin, int64_t end,
                      const std::shared_ptr<const worker::HalfArrays>& halves) const {
    worker::SendMessage message{.request = {.kind = worker::OpKind::kPush}};
    message.shards.push_back({.key = {TableId(0), ShardId(0)}, .elements = {begin, end}});
    const worker::PushArrays arrays(floats_);
    return Encode(worker::EncodePush({.job = "job"}, message, arrays, formats_, {}, {}, halves))
        .size();
  }

  const int64_t elements_;
  const NumberFormat format_;
  std::vector<char> pinned_;
  const std::shared_ptr<worker::TableArrays> floats_ = std::make_shared<worker::TableArrays>();
  const std::shared_ptr<worker::HalfArrays> halves_ = std::make_shared<worker::HalfArrays>();
  worker::Formats formats_;
};

// An operation is a whole gradient.
template <typename Pass>
Contestant ContestantOf(const std::string& name, const Gradient& gradient, const Pass& pass) {
  return {.name = name, .run = [&gradient, pass](int64_t count) -> absl::StatusOr<Turn> {
            OperationTimer timer(ProcessorSeconds);
            for (int64_t i = 0; i < count; ++i) {
              timer.Begin();
              CAPSTAN_RETURN_IF_ERROR(pass());
              timer.End(gradient.bytes());
            }
            return timer.Take();
          }};
}

absl::Status CompareAll(const Flags& flags, Report* report) {
  for (const auto& [name, format] : {std::pair("bf16", NumberFormat::kBf16),
                                     {"fp16", NumberFormat::kFp16},
                                     {"fp32", NumberFormat::kFp32}}) {
    Gradient gradient(flags.elements, format);
    worker::HostCopies alone(1), threads(flags.threads);
    CAPSTAN_ASSIGN_OR_RETURN(
        std::vector<Series> series,
        MeasureInTurn({ContestantOf("one pass, one thread", gradient,
                                    [&] { return gradient.InOnePass(alone); }),
                       ContestantOf("one pass, threads", gradient,
                                    [&] { return gradient.InOnePass(threads); }),
                       ContestantOf("pass by pass, one thread", gradient,
                                    [&] { return gradient.InThreePasses(); })},
                      flags.report.turns));
    report->Add({.measure = std::string("gradient to its messages, ") + name,
                 .series = std::move(series),
                 .goals = {0, 0, 0}});
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Flags flags;
  Program program("Measures a gradient's way from pinned memory to its messages.");
  AddReportFlags(program, &flags.report);
  program.AddOption("--elements", flags.elements, "Of the gradient").Between(1, 1 << 30);
  program.AddOption("--threads", flags.threads, "Of the contestant that has several")
      .Between(2, 64);
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  Report report(flags.report.json);
  return report.Finish(CompareAll(flags, &report));
}

}  // namespace
}  // namespace capstan::benchmark

int main(int argc, char** argv) { return capstan::benchmark::Main(argc, argv); }
