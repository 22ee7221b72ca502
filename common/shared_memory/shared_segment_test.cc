#include "common/shared_memory/shared_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "common/testing/status_matchers.h"

namespace capstan::shared_segment_test {
namespace {

using absl::StatusCode;

constexpr int64_t kBytes = 10'000;

// A memfd that is made as told, with a challenge at its begin.
class Memfd {
 public:
  Memfd(int64_t bytes, int mode, int seals) : fd_(memfd_create("test", MFD_ALLOW_SEALING)) {
    REQUIRE(ftruncate(fd_, bytes) == 0);
    REQUIRE(pwrite(fd_, challenge_.data(), challenge_.size(), 0) == 16);
    REQUIRE(fchmod(fd_, static_cast<mode_t>(mode)) == 0);
    REQUIRE(fcntl(fd_, F_ADD_SEALS, seals) == 0);
  }
  ~Memfd() { close(fd_); }
  SegmentOffer Offer() const {
    return {.process = getpid(), .descriptor = fd_, .bytes = kBytes, .challenge = challenge_};
  }
  int fd() const { return fd_; }

 private:
  const std::string challenge_ = "0123456789abcdef";
  const int fd_;
};

constexpr int kAllSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr int64_t kFileBytes = kBytes + 4096;

StatusCode CodeOf(const SegmentOffer& offer) { return SharedSegment::Open(offer).status().code(); }

TEST_CASE("Shared segment: two mappings of one segment see each other's writes",
          "[shared_segment]") {
  REQUIRE_OK_AND_ASSIGN(const auto ours, SharedSegment::Create(kBytes));
  REQUIRE_OK(ours->Allocate());
  REQUIRE_OK_AND_ASSIGN(const auto theirs, SharedSegment::Open(ours->offer()));
  CHECK(theirs->size() == kBytes);
  CHECK(theirs->proof() == ours->proof());
  CHECK(ours->proof() != ours->offer().challenge);
  std::memcpy(ours->data() + kBytes - 5, "hello", 5);
  CHECK(std::string(theirs->data() + kBytes - 5, 5) == "hello");
}

TEST_CASE("Shared segment: another process maps the segment, and what it wrote outlives it",
          "[shared_segment]") {
  REQUIRE_OK_AND_ASSIGN(const auto ours, SharedSegment::Create(kBytes));
  REQUIRE_OK(ours->Allocate());
  const SegmentOffer offer = ours->offer();
  const pid_t child = fork();
  if (child == 0) {
    const auto theirs = SharedSegment::Open(offer);
    if (!theirs.ok()) _exit(1);
    std::memcpy((*theirs)->data(), (*theirs)->proof().data(), SharedSegment::kSecretBytes);
    _exit(0);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(std::string(ours->data(), SharedSegment::kSecretBytes) == ours->proof());
}

TEST_CASE("Shared segment: a segment outlives the one who made it", "[shared_segment]") {
  std::shared_ptr<SharedSegment> theirs;
  {
    REQUIRE_OK_AND_ASSIGN(const auto ours, SharedSegment::Create(kBytes));
    REQUIRE_OK_AND_ASSIGN(theirs, SharedSegment::Open(ours->offer()));
    ours->data()[0] = 'x';
  }
  CHECK(theirs->data()[0] == 'x');
}

TEST_CASE("Shared segment: a segment cannot be made shorter under its users", "[shared_segment]") {
  REQUIRE_OK_AND_ASSIGN(const auto ours, SharedSegment::Create(kBytes));
  CHECK(ftruncate(ours->offer().descriptor, 100) == -1);
  CHECK(errno == EPERM);
}

TEST_CASE("Shared segment: what the opener of a segment refuses", "[shared_segment]") {
  SECTION("nothing, where all is well") {
    CHECK(CodeOf(Memfd(kFileBytes, 0600, kAllSeals).Offer()) == StatusCode::kOk);
  }
  SECTION("memory that may be made shorter") {
    CHECK(CodeOf(Memfd(kFileBytes, 0600, F_SEAL_GROW | F_SEAL_SEAL).Offer()) ==
          StatusCode::kInvalidArgument);
  }
  SECTION("another length than was said") {
    CHECK(CodeOf(Memfd(kFileBytes - 1, 0600, kAllSeals).Offer()) == StatusCode::kInvalidArgument);
  }
  SECTION("memory that others may open") {
    CHECK(CodeOf(Memfd(kFileBytes, 0640, kAllSeals).Offer()) == StatusCode::kPermissionDenied);
  }
  const Memfd memfd(kFileBytes, 0600, kAllSeals);
  SegmentOffer offer = memfd.Offer();
  SECTION("a challenge that is not there") {
    offer.challenge = "0123456789abcdeX";
    CHECK(CodeOf(offer) == StatusCode::kNotFound);
  }
  SECTION("a short challenge") {
    offer.challenge = "0123";
    CHECK(CodeOf(offer) == StatusCode::kInvalidArgument);
  }
  SECTION("a descriptor that is not there") {
    offer.descriptor = 1'000'000;
    CHECK(CodeOf(offer) == StatusCode::kNotFound);
  }
  SECTION("numbers that cannot be") {
    offer.process = 0;
    CHECK(CodeOf(offer) == StatusCode::kInvalidArgument);
    offer = memfd.Offer();
    offer.bytes = 0;
    CHECK(CodeOf(offer) == StatusCode::kInvalidArgument);
    offer.bytes = int64_t{1} << 40;
    CHECK(CodeOf(offer) == StatusCode::kInvalidArgument);
  }
  SECTION("a file, a directory, a pipe") {
    for (const char* path : {"/proc/self/exe", "/"}) {
      const int fd = open(path, O_RDONLY);
      offer.descriptor = fd;
      CHECK(CodeOf(offer) == StatusCode::kNotFound);
      close(fd);
    }
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    offer.descriptor = ends[0];
    CHECK(CodeOf(offer) == StatusCode::kNotFound);
    close(ends[0]);
    close(ends[1]);
  }
}

}  // namespace
}  // namespace capstan::shared_segment_test
