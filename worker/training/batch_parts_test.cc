#include "worker/training/batch_parts.h"

#include <catch2/catch.hpp>
#include <vector>

namespace capstan::worker::batch_parts_test {
namespace {

TEST_CASE("Batch parts: cover the batch in order, and differ by one sample at most",
          "[worker][training]") {
  for (int64_t members = 1; members <= 16; ++members) {
    for (int64_t n = 0; n <= 40; ++n) {
      INFO(n << " samples, " << members << " members");
      int64_t end = 0;
      for (int64_t member = 0; member < members; ++member) {
        const BatchPart part = PartOf(n, member, members);
        CHECK(part.begin == end);
        CHECK(part.n() >= n / members);
        CHECK(part.n() <= (n + members - 1) / members);
        CHECK(part.n() <= PartOf(n, 0, members).n());
        end = part.end;
      }
      CHECK(end == n);
    }
  }
}

TEST_CASE("Batch parts: a view has the images of its labels, and the batch's name",
          "[worker][training]") {
  const std::vector<float> images = {0, 1, 10, 11, 20, 21};
  const std::vector<int32_t> labels = {0, 1, 2};
  const BatchView batch{images, labels, 7};
  const BatchView part = ViewOf(batch, PartOf(3, 1, 2));
  CHECK(part.name == 7);
  CHECK(std::vector<float>(part.images.begin(), part.images.end()) == std::vector<float>{20, 21});
  CHECK(std::vector<int32_t>(part.labels.begin(), part.labels.end()) == std::vector<int32_t>{2});
}

}  // namespace
}  // namespace capstan::worker::batch_parts_test
