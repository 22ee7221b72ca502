// A program of a job at its own pace, by the C interface: pushes to and pulls from all of its
// tables, round by round, and writes what that took. python_client compares it with Python's.
//
//   table_rounds ROUNDS FILE      seconds of each round, one a line
#include <algorithm>
#include <chrono>
#include <cstdint>
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

// Says what went wrong; returns whether nothing did.
bool IsOk(capstan_code code, const char* error) {
  if (code != CAPSTAN_OK) {
    std::fprintf(stderr, "table_rounds: %d: %s\n", static_cast<int>(code), error);
  }
  return code == CAPSTAN_OK;
}

bool Round(capstan_task* task, std::vector<Arrays>& tables) {
  char error[CAPSTAN_ERROR_BYTES];
  std::vector<int64_t> operations(2 * tables.size());
  for (size_t t = 0; t < tables.size(); ++t) {
    const auto table = static_cast<int64_t>(t);
    const auto count = static_cast<int64_t>(tables[t].values.size());
    const capstan_code pushed = capstan_task_push(
        task, table, nullptr, 0, tables[t].gradient.data(), count, &operations[2 * t], error);
    if (!IsOk(pushed, error)) return false;
    const capstan_code pulled = capstan_task_pull(task, table, nullptr, 0, tables[t].values.data(),
                                                  count, &operations[2 * t + 1], error);
    if (!IsOk(pulled, error)) return false;
  }
  return std::all_of(operations.begin(), operations.end(), [&](int64_t operation) {
    return IsOk(capstan_task_wait(task, operation, kPatience, error), error);
  });
}

// Runs the rounds; returns the lines of the file. Empty: failed.
std::string Run(capstan_task* task, int rounds) {
  std::vector<Arrays> tables(static_cast<size_t>(capstan_task_table_count(task)));
  for (size_t t = 0; t < tables.size(); ++t) {
    const auto elements = static_cast<size_t>(capstan_task_elements(task, static_cast<int64_t>(t)));
    tables[t] = {std::vector<float>(elements, 1.0f), std::vector<float>(elements)};
  }
  std::string lines;
  for (; rounds > 0; --rounds) {
    const auto begin = std::chrono::steady_clock::now();
    if (!Round(task, tables)) return "";
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    lines += std::to_string(took.count()) + "\n";
  }
  return lines;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  char error[CAPSTAN_ERROR_BYTES];
  capstan_task* const task = capstan_task_start(error);
  if (task == nullptr) return IsOk(CAPSTAN_FAILED, error) ? 0 : 1;
  capstan_work work = {};
  work.size = sizeof(work);
  capstan_code code;
  while ((code = capstan_task_next(task, 1.0, &work, error)) == CAPSTAN_TIMEOUT) {
  }
  if (!IsOk(code, error)) return 1;
  const std::string lines = Run(task, std::atoi(argv[1]));
  std::FILE* const file = lines.empty() ? nullptr : std::fopen(argv[2], "w");
  if (file == nullptr) return 1;
  std::fputs(lines.c_str(), file);
  std::fclose(file);
  if (!IsOk(capstan_task_finish(task, 0, 0, error), error)) return 1;
  return capstan_task_close(task);
}
