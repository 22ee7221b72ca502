#include "worker/daemon/log_uploader.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/testing/status_matchers.h"

namespace capstan::worker::log_uploader_test {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(20);
const TaskName kTask{"a-1", Rank(2), Incarnation(5)};

// The log of one task, and a scheduler that keeps it.
struct World {
  World()
      : uploader({.read = [this](const auto& request) { return Read(request); },
                  .keep = [this](const auto& request) { return Keep(request); },
                  .interval = absl::Milliseconds(1),
                  .behind_max = 1000}) {}
  ~World() { uploader.Stop(); }

  absl::StatusOr<v1::ReadTaskLogResponse> Read(const v1::ReadTaskLogRequest& request) {
    const absl::MutexLock lock(&mutex);
    if (request.incarnation() != 5) return absl::NotFoundError("no such log");
    const auto size = static_cast<int64_t>(log.size());
    const int64_t begin = request.offset() >= 0 ? std::min(request.offset(), size)
                                                : size + std::max(request.offset(), -size);
    v1::ReadTaskLogResponse response;
    response.set_data(
        log.substr(static_cast<size_t>(begin), static_cast<size_t>(request.bytes_max())));
    response.set_next_offset(begin + static_cast<int64_t>(response.data().size()));
    response.set_ended(ended && response.next_offset() == size);
    return response;
  }
  absl::StatusOr<int64_t> Keep(const v1::KeepTaskLogRequest& request) {
    const absl::MutexLock lock(&mutex);
    ++calls;
    if (!answer.ok()) return answer;
    const auto end = kept_from + static_cast<int64_t>(kept.size());
    if (request.offset() > end) {
      kept_from = request.offset();
      kept.clear();
    }
    if (request.offset() + static_cast<int64_t>(request.data().size()) > end) {
      kept = kept.substr(0, static_cast<size_t>(request.offset() - kept_from)) + request.data();
    }
    return kept_from + static_cast<int64_t>(kept.size());
  }
  void Write(const std::string& text) {
    const absl::MutexLock lock(&mutex);
    log += text;
  }
  void Answer(const absl::Status& status) {
    const absl::MutexLock lock(&mutex);
    answer = status;
  }
  template <typename Predicate>
  bool Await(const Predicate& holds) {
    const absl::MutexLock lock(&mutex);
    return mutex.AwaitWithTimeout(absl::Condition(&holds), kPatience);
  }
  bool AwaitKept(const std::string& text) {
    return Await([&] { return kept == text; });
  }
  bool AwaitCalls() {  // Waits for two more calls.
    const int before = [&] {
      const absl::MutexLock lock(&mutex);
      return calls;
    }();
    return Await([&] { return calls >= before + 2; });
  }

  absl::Mutex mutex;
  std::string log;
  bool ended = false;
  absl::Status answer;
  std::string kept;
  int64_t kept_from = 0;
  int calls = 0;
  LogUploader uploader;  // Declared last: its thread uses all of the above.
};

TEST_CASE("LogUploader: what a task writes goes out, and it is forgotten at its end", "[worker]") {
  World world;
  world.uploader.Watch(kTask);
  world.uploader.Start();
  world.Write("one\n");
  REQUIRE(world.AwaitKept("one\n"));
  world.Write("two\n");
  REQUIRE(world.AwaitKept("one\ntwo\n"));
  CHECK(world.uploader.watched() == 1);
  {
    const absl::MutexLock lock(&world.mutex);
    world.log += "three\n";
    world.ended = true;
  }
  world.uploader.Stop();  // The last round sends what is left.
  CHECK(world.kept == "one\ntwo\nthree\n");
  CHECK(world.uploader.watched() == 0);
}

TEST_CASE("LogUploader: only the end of a long log goes out, and what is kept goes on",
          "[worker]") {
  World world;
  world.kept = "begin ";  // An earlier incarnation of the scheduler has kept this.
  std::string whole = "begin ";
  for (int i = 0; i < 1000; ++i) whole += absl::StrCat(i, "\n");
  world.Write(whole);
  world.uploader.Watch(kTask);
  world.uploader.Start();
  REQUIRE(world.AwaitKept(whole.substr(whole.size() - 1000)));
  CHECK(world.kept_from == static_cast<int64_t>(whole.size()) - 1000);
}

TEST_CASE("LogUploader: a scheduler that is away, or has no room, is asked again", "[worker]") {
  World world;
  world.Answer(GENERATE(absl::UnavailableError("away"), absl::DeadlineExceededError("slow"),
                        absl::ResourceExhaustedError("full")));
  world.uploader.Watch(kTask);
  world.uploader.Start();
  world.Write("one\n");
  REQUIRE(world.AwaitCalls());
  CHECK(world.uploader.watched() == 1);
  world.Answer(absl::OkStatus());
  REQUIRE(world.AwaitKept("one\n"));
}

TEST_CASE("LogUploader: a job that the scheduler does not know is forgotten, and no other",
          "[worker]") {
  World world;
  world.Answer(absl::NotFoundError("there is no job"));
  world.uploader.Watch(kTask);
  world.uploader.Start();
  REQUIRE(world.Await([&] { return world.calls > 0; }));
  world.uploader.Stop();
  CHECK(world.uploader.watched() == 0);
}

TEST_CASE("LogUploader: a log that is gone is forgotten, the others go out", "[worker]") {
  World world;
  world.uploader.Watch({"a-1", Rank(2), Incarnation(4)});
  world.uploader.Watch(kTask);
  world.Write("one\n");
  world.uploader.Start();
  REQUIRE(world.AwaitKept("one\n"));
  world.uploader.Stop();
  CHECK(world.uploader.watched() == 1);
}

TEST_CASE("LogUploader: the number of logs that it watches is bounded", "[worker]") {
  World world;
  for (size_t i = 1; i <= LogUploader::kTasksMax + 10; ++i) {
    world.uploader.Watch({"a-1", Rank(0), Incarnation(i)});
  }
  CHECK(world.uploader.watched() == LogUploader::kTasksMax);
}

}  // namespace
}  // namespace capstan::worker::log_uploader_test
