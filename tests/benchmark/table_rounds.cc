// A program of a job at its own pace, by the C interface: pushes to and pulls from all of its
// tables, round by round, and writes what that took. python_client compares it with Python's.
//
//   table_rounds ROUNDS FILE      seconds of each round, one a line
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "worker/program/capstan_client.h"

namespace {

constexpr double kPatience = 60;  // Seconds.

// The arrays of one table.
struct Arrays {
  std::vector<float> gradient, values;
};

void Check(capstan_code code, const char* error) {
  if (code == CAPSTAN_OK) return;
  std::fprintf(stderr, "table_rounds: %d: %s\n", static_cast<int>(code), error);
  std::exit(1);
}

void Round(capstan_task* task, std::vector<Arrays>& tables) {
  char error[CAPSTAN_ERROR_BYTES];
  std::vector<int64_t> operations(2 * tables.size());
  for (size_t t = 0; t < tables.size(); ++t) {
    const auto count = static_cast<int64_t>(tables[t].values.size());
    Check(capstan_task_push(task, static_cast<int64_t>(t), nullptr, 0, tables[t].gradient.data(),
                            count, &operations[2 * t], error),
          error);
    Check(capstan_task_pull(task, static_cast<int64_t>(t), nullptr, 0, tables[t].values.data(),
                            count, &operations[2 * t + 1], error),
          error);
  }
  for (const int64_t operation : operations) {
    Check(capstan_task_wait(task, operation, kPatience, error), error);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  char error[CAPSTAN_ERROR_BYTES];
  capstan_task* const task = capstan_task_start(error);
  if (task == nullptr) Check(CAPSTAN_FAILED, error);
  capstan_work work = {};
  work.size = sizeof(work);
  capstan_code code;
  while ((code = capstan_task_next(task, 1.0, &work, error)) == CAPSTAN_TIMEOUT) {
  }
  Check(code, error);
  std::vector<Arrays> tables(static_cast<size_t>(capstan_task_table_count(task)));
  for (size_t t = 0; t < tables.size(); ++t) {
    const auto elements = static_cast<size_t>(capstan_task_elements(task, static_cast<int64_t>(t)));
    tables[t] = {std::vector<float>(elements, 1.0f), std::vector<float>(elements)};
  }
  std::string lines;
  for (int round = std::atoi(argv[1]); round > 0; --round) {
    const auto begin = std::chrono::steady_clock::now();
    Round(task, tables);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    lines += std::to_string(took.count()) + "\n";
  }
  if (std::FILE* const file = std::fopen(argv[2], "w")) {
    std::fputs(lines.c_str(), file);
    std::fclose(file);
  }
  Check(capstan_task_finish(task, 0, 0, error), error);
  return capstan_task_close(task);
}
