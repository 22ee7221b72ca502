// capstan_client.h: the C interface of libcapstan_client.so, by which a program that a job runs
// (JobSpec.program) trains.
/*
 *   char error[CAPSTAN_ERROR_BYTES];
 *   capstan_task* task = capstan_task_start(error);           // from the environment of the task
 *   capstan_work work;
 *   while (capstan_task_next(task, 1.0, &work, error) != CAPSTAN_ENDED) {
 *     ...repeat on CAPSTAN_TIMEOUT, leave on an error...
 *     const float* w = capstan_task_parameters(task, 0);      // read them, compute the gradient
 *     capstan_task_put_gradient(task, 0, 0, gradient, n, error);
 *     capstan_task_finish(task, loss_sum, correct, error);
 *   }
 *   capstan_task_close(task);
 *
 * Functions that can fail return a capstan_code; `error` then holds a sentence, cut to
 * CAPSTAN_ERROR_BYTES with its NUL, and may be NULL. Values are fp32 in the host's memory. A call
 * blocks only where this says so, and never calls back. Thread safety: one thread at a time uses a
 * task; capstan_task_fail may be called by any. After fork() the child must not use it.
 *
 * The interface only grows: a function or a field keeps its meaning. capstan_work grows at its end,
 * and callers say by its first field how much of it they know.
 */
#ifndef CAPSTAN_WORKER_PROGRAM_CAPSTAN_CLIENT_H_
#define CAPSTAN_WORKER_PROGRAM_CAPSTAN_CLIENT_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CAPSTAN_ERROR_BYTES 1024

typedef enum {
  CAPSTAN_OK = 0,
  CAPSTAN_TIMEOUT = 1, /* Nothing has come in the time given: call again. */
  CAPSTAN_ENDED = 2,   /* The task is done, or was told to stop: no more work will come. */
  CAPSTAN_WRONG = 3,   /* An argument, or a call out of order. Nothing has changed. */
  CAPSTAN_DIVERGED = 4 /* A value is not finite. */
} capstan_code;

typedef struct capstan_task capstan_task; /* Owned by the caller; ended by capstan_task_close. */

/* What to do with a batch. */
typedef enum {
  CAPSTAN_COMPUTE = 0,   /* Compute its gradient. */
  CAPSTAN_NAME_KEYS = 1, /* Name the rows that it will need. Only if the job has tables of rows. */
  /* Compute its loss alone; its samples are of the test data. Only if the job has test_samples. */
  CAPSTAN_EVALUATE = 2,
  CAPSTAN_NAME_TEST_KEYS = 3 /* As CAPSTAN_NAME_KEYS, of a batch to be evaluated. */
} capstan_work_kind;

typedef struct {
  uint64_t size;     /* In: sizeof(capstan_work). */
  int64_t epoch;     /* From 0. */
  int64_t iteration; /* From 0. */
  int64_t slot;      /* BSP: which of the iteration's batches it is, from 0. Else -1. */
  /* The same number for the same samples in the same epoch, whoever computes them: for random
   * numbers (dropout, augmentation). */
  uint64_t seed;
  const int64_t* samples; /* [sample_count]: their numbers, in order. Valid until it is finished. */
  int64_t sample_count;   /* At least 1. */
  /* capstan_work_kind. The keys of a batch are asked for before it is to be computed, and often
   * before the one in front of it. Some batches are asked about and go to another worker. */
  int64_t kind;
} capstan_work;

typedef enum {
  CAPSTAN_PARAMETERS = 0, /* Tensors that an optimizer updates. */
  CAPSTAN_AVERAGES = 1,   /* Tensors that become the mean of what is put for them. */
  CAPSTAN_ROWS = 2        /* Rows by key, which an optimizer updates. */
} capstan_table_kind;

typedef struct {
  const char* name;
  int64_t kind; /* capstan_table_kind */
  int64_t dim;  /* CAPSTAN_ROWS: floats a row. Else 0. */
} capstan_table;

/* A tensor in a table. */
typedef struct {
  const char* name;     /* As in the job. */
  const int64_t* shape; /* [dimensions] */
  int64_t dimensions;
  int64_t first; /* Its first element in the table. */
  int64_t count; /* Its elements. */
} capstan_tensor;

/* Starts the task that this process was started for, as the variables CAPSTAN_TASK_SPEC,
 * CAPSTAN_SCHEDULER, CAPSTAN_TLS_DIR and CAPSTAN_LOG_FORMAT say. A process has one. NULL: failed.
 */
capstan_task* capstan_task_start(char* error);

/* Facts of the task. Strings and arrays live as long as it does. */
const char* capstan_task_job(const capstan_task* task); /* The job's id. */
int64_t capstan_task_rank(const capstan_task* task);    /* 0 to workers - 1. */
int64_t capstan_task_workers(const capstan_task* task);
int64_t capstan_task_table_count(const capstan_task* task);
capstan_code capstan_task_table(const capstan_task* task, int64_t index, capstan_table* table,
                                char* error);
/* -1: no such table. Of a table of rows: those of the batch that is computed; -1 at other times. */
int64_t capstan_task_elements(const capstan_task* task, int64_t table);
int64_t capstan_task_tensor_count(const capstan_task* task, int64_t table); /* -1: likewise. */
capstan_code capstan_task_tensor(const capstan_task* task, int64_t table, int64_t index,
                                 capstan_tensor* tensor, char* error);

/* Waits at most `seconds` for the next batch. The one before must be finished. */
capstan_code capstan_task_next(capstan_task* task, double seconds, capstan_work* work, char* error);

/* The batches that are planned after the current work, in order, to load their data meanwhile: most
 * of them come next, but any may go to another worker. Their kind is CAPSTAN_COMPUTE or
 * CAPSTAN_EVALUATE. Count: 0 if none are known, or there is no current work. Their samples are
 * valid until the current work is finished. */
int64_t capstan_task_upcoming_count(const capstan_task* task);
capstan_code capstan_task_upcoming(const capstan_task* task, int64_t index, capstan_work* work,
                                   char* error);

/* CAPSTAN_NAME_KEYS, CAPSTAN_NAME_TEST_KEYS: the batch needs these rows of a table, [count], in any
 * order, repeated or not. places[i], [count], becomes the row of keys[i] in the table's values once
 * it is computed. */
capstan_code capstan_task_name_keys(capstan_task* task, int64_t table, const int64_t* keys,
                                    int64_t count, int64_t* places, char* error);

/* The values of a table for the current batch, [elements], or [rows, dim]: valid until it is
 * finished, or their gradient is released. NULL: no such table, or no batch. */
const float* capstan_task_parameters(capstan_task* task, int64_t table);

/* Elements [first, first + count) of the gradient of the batch's mean loss; of averages: what they
 * become. What is not set is 0. */
capstan_code capstan_task_put_gradient(capstan_task* task, int64_t table, int64_t first,
                                       const float* values, int64_t count, char* error);

/* All elements of table 0 from `first` on have been put, and these parameters are not read any
 * more: they are sent while the rest is computed. Optional; `first` falls from call to call. */
capstan_code capstan_task_release(capstan_task* task, int64_t first, char* error);

/* Ends the current work, with or without a gradient. `loss_sum` is the sum of its samples' losses;
 * `correct` counts those that were classified correctly, 0 if nothing is classified. */
capstan_code capstan_task_finish(capstan_task* task, double loss_sum, int64_t correct, char* error);

/* The program cannot go on: the task ends with this sentence, which the job then shows. */
void capstan_task_fail(capstan_task* task, const char* message);

/* Ends the task and waits until the scheduler has been told; a task that is not done fails. Returns
 * the process's exit code. */
int capstan_task_close(capstan_task* task);

#ifdef __cplusplus
}
#endif

#endif /* CAPSTAN_WORKER_PROGRAM_CAPSTAN_CLIENT_H_ */
