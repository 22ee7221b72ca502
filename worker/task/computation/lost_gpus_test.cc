#include "worker/task/computation/lost_gpus.h"

#include <catch2/catch.hpp>

#include "common/status/annotate.h"

namespace capstan::worker::lost_gpus_test {
namespace {

TEST_CASE("Lost GPUs: an error says which, also with more words before it", "[worker][task]") {
  const absl::Status error = absl::UnavailableError("they do not answer");
  CHECK(LostGpusOf(error).empty());
  CHECK(LostGpusOf(WithLostGpus(error, {3})) == std::vector<int>{3});
  const absl::Status both = Annotate(WithLostGpus(error, {0, 12}), "iteration 7");
  CHECK(LostGpusOf(both) == std::vector<int>{0, 12});
  CHECK(both.message() == "iteration 7: they do not answer");
}

TEST_CASE("Lost GPUs: without one nothing changes", "[worker][task]") {
  CHECK(WithLostGpus(absl::InternalError("x"), {}) == absl::InternalError("x"));
  CHECK(WithLostGpus(absl::OkStatus(), {1}).ok());
  CHECK(LostGpusOf(WithLostGpus(absl::OkStatus(), {1})).empty());
}

}  // namespace
}  // namespace capstan::worker::lost_gpus_test
