/* Fits a line to made data, as the program of a job with two parameters of one number:
 *
 *   cc line.c $(pkg-config --cflags --libs capstan) -o line
 *   capstan cluster run job.textproto
 *
 * program {
 *   command: "/path/to/line" samples: 64
 *   parameters { name: "slope" } parameters { name: "offset" }
 * }
 * training { epochs: 30 batch_size: 8 }   optimizer { sgd {} learning_rate: 0.5 }
 * resources { workers: 2 }
 */
#include <capstan_client.h>
#include <stdio.h>

static const int64_t kSamples = 64;

/* The gradient of the mean of (slope * x + offset - y)^2 / 2 over a batch; returns the losses' sum.
 */
static double Gradient(const float* parameters, const capstan_work* work, float* gradient) {
  double sums[2] = {0.0, 0.0}, loss = 0.0;
  for (int64_t i = 0; i < work->sample_count; ++i) {
    const double x = 2.0 * (double)work->samples[i] / (double)kSamples - 1.0, y = 3.0 * x - 1.0;
    const double error = parameters[0] * x + parameters[1] - y;
    sums[0] += error * x;
    sums[1] += error;
    loss += error * error / 2.0;
  }
  for (int i = 0; i < 2; ++i) gradient[i] = (float)(sums[i] / (double)work->sample_count);
  return loss;
}

int main(void) {
  char error[CAPSTAN_ERROR_BYTES] = "";
  capstan_task* const task = capstan_task_start(error);
  if (task == NULL) {
    fprintf(stderr, "line: %s\n", error);
    return 1;
  }
  for (;;) {
    capstan_work work = {.size = sizeof work};
    capstan_code code = capstan_task_next(task, 1.0, &work, error);
    if (code == CAPSTAN_TIMEOUT) continue;
    if (code == CAPSTAN_ENDED) break;
    float gradient[2] = {0.0f, 0.0f};
    double loss = 0.0;
    if (code == CAPSTAN_OK) {
      loss = Gradient(capstan_task_parameters(task, 0), &work, gradient);
      code = capstan_task_put_gradient(task, 0, 0, gradient, 2, error);
    }
    if (code == CAPSTAN_OK) code = capstan_task_finish(task, loss, 0, error);
    if (code != CAPSTAN_OK) {
      capstan_task_fail(task, error);
      break;
    }
  }
  return capstan_task_close(task);
}
