#include "worker/task/task_activity.h"

#include <catch2/catch.hpp>

namespace capstan::worker::task_activity_test {
namespace {

v1::SyncTaskRequest ReportOf(TaskActivity& activity) {
  v1::SyncTaskRequest report;
  activity.AddTo(report);
  return report;
}

TEST_CASE("Task activity: each thing is counted from its beginning", "[worker][task]") {
  TaskActivity activity;
  CHECK_FALSE(ReportOf(activity).has_activity());
  const Progress listener = activity.listener();
  listener("examples read", 1000);
  listener("examples read", 24);
  CHECK(ReportOf(activity).activity().what() == "examples read");
  CHECK(ReportOf(activity).activity().done() == 1024);
  listener("bytes written", 7);
  CHECK(ReportOf(activity).activity().what() == "bytes written");
  CHECK(ReportOf(activity).activity().done() == 7);
  activity.End();
  CHECK_FALSE(ReportOf(activity).has_activity());
  listener("bytes written", 5);  // This is another export.
  CHECK(ReportOf(activity).activity().done() == 5);
}

}  // namespace
}  // namespace capstan::worker::task_activity_test
