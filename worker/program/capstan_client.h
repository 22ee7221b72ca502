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
 * If the job has own_pace, the only work is the program's run (CAPSTAN_RUN), in which it pushes and
 * pulls single tables as it likes:
 *
 *     capstan_task_pull(task, table, NULL, 0, w, n, &pull, error);
 *     capstan_task_wait(task, pull, 60.0, error);              // then w has the values
 *     capstan_task_push(task, table, NULL, 0, gradient, n, &push, error);
 *     capstan_task_wait(task, push, 60.0, error);
 *     ...
 *     capstan_task_finish(task, 0, 0, error);
 *
 * A process that is killed is started again, and its run with it, from the start. What it pushed
 * before stays in the tables: each push that was acknowledged, once. So a run that must not do its
 * work twice keeps its progress in a table of its own, and reads that first.
 *
 * Functions that can fail return a capstan_code; `error` then holds a sentence, cut to
 * CAPSTAN_ERROR_BYTES with its NUL, and may be NULL. Values are fp32 in the host's memory. A call
 * blocks only where this says so, and never calls back. Thread safety: one thread at a time uses a
 * task; any thread may call capstan_task_fail, _push, _pull, _wait and _snapshot. After fork() the
 * child must not use the task.
 *
 * The interface only grows: a function or a field keeps its meaning. capstan_work grows at its end;
 * its first field is the size that the caller knows, which must be at least this library's.
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
  CAPSTAN_TIMEOUT = 1,  /* Nothing has come in the time given: call again. */
  CAPSTAN_ENDED = 2,    /* The task is done, or was told to stop: no more work will come. */
  CAPSTAN_WRONG = 3,    /* A wrong argument, or a call out of order. Nothing has changed. */
  CAPSTAN_DIVERGED = 4, /* A value is not finite. */
  CAPSTAN_FAILED = 5    /* Servers will not do it, or did it and their answer was lost. */
} capstan_code;

typedef struct capstan_task capstan_task; /* Owned by the caller; ended by capstan_task_close. */

/* What to do with a batch. */
typedef enum {
  CAPSTAN_COMPUTE = 0,   /* Compute its gradient. */
  CAPSTAN_NAME_KEYS = 1, /* Name the rows that it will need. Only if the job has tables of rows. */
  /* Compute its loss alone; its samples are of the test data. Only if the job has test_samples. */
  CAPSTAN_EVALUATE = 2,
  CAPSTAN_NAME_TEST_KEYS = 3, /* As CAPSTAN_NAME_KEYS, for a batch to be evaluated. */
  CAPSTAN_RUN = 4 /* Run, pushing and pulling by yourself. Only if the job has own_pace. */
} capstan_work_kind;

typedef struct {
  uint64_t size;     /* In: sizeof(capstan_work). */
  int64_t epoch;     /* From 0. */
  int64_t iteration; /* From 0. */
  int64_t slot;      /* BSP: which of the iteration's batches it is, from 0. Else -1. */
  /* For random numbers (dropout, augmentation): the same for the same samples in the same epoch, on
   * any worker. */
  uint64_t seed;
  const int64_t* samples; /* [sample_count]: their numbers, in order. Valid until it is finished. */
  int64_t sample_count;   /* At least 1. CAPSTAN_RUN: 0; epoch and iteration are 0, too. */
  /* capstan_work_kind. The keys of a batch are asked for before it is to be computed, and often
   * before the preceding batch. A batch whose keys were named may still go to another worker. */
  int64_t kind;
} capstan_work;

typedef enum {
  CAPSTAN_PARAMETERS = 0, /* Tensors that an optimizer updates. */
  CAPSTAN_AVERAGES = 1,   /* Tensors that become the mean of the values put. */
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
 * CAPSTAN_SCHEDULER, CAPSTAN_TLS_DIR and CAPSTAN_LOG_FORMAT say. A process starts at most one task.
 * NULL: failed. */
capstan_task* capstan_task_start(char* error);

/* Facts of the task. Strings and arrays live as long as the task does. */
const char* capstan_task_job(const capstan_task* task); /* The job's id. */
int64_t capstan_task_rank(const capstan_task* task);    /* 0 to workers - 1. */
int64_t capstan_task_workers(const capstan_task* task);
int64_t capstan_task_table_count(const capstan_task* task);
capstan_code capstan_task_table(const capstan_task* task, int64_t index, capstan_table* table,
                                char* error);
/* The number of a table's elements; -1: no such table. For a table of rows: the elements of the
 * current batch's rows; -1 if no batch is being computed. */
int64_t capstan_task_elements(const capstan_task* task, int64_t table);
int64_t capstan_task_tensor_count(const capstan_task* task, int64_t table); /* -1: no such table. */
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
 * order, repeated or not. places[i], [count], becomes the row of keys[i] in the table's values when
 * the batch is computed. */
capstan_code capstan_task_name_keys(capstan_task* task, int64_t table, const int64_t* keys,
                                    int64_t count, int64_t* places, char* error);

/* The values of a table for the current batch, [elements], or [rows, dim]: valid until it is
 * finished, their gradient is released, or any thread calls capstan_task_fail. NULL: no such table,
 * or no batch. */
const float* capstan_task_parameters(capstan_task* task, int64_t table);

/* Sets elements [first, first + count) of the gradient of the batch's mean loss; for averages: of
 * their new values. Elements that are not set are 0. CAPSTAN_DIVERGED: a value is not finite;
 * unless others are put in their place, they cannot be released, and the task fails when the batch
 * is finished. */
capstan_code capstan_task_put_gradient(capstan_task* task, int64_t table, int64_t first,
                                       const float* values, int64_t count, char* error);

/* All elements of table 0 from `first` on have been put, and these parameters are not read any
 * more: the elements are sent while the rest is computed. Optional; `first` falls from call to
 * call. */
capstan_code capstan_task_release(capstan_task* task, int64_t first, char* error);

/* Ends the current work. `loss_sum` is the sum of its samples' losses; `correct` counts those that
 * were classified correctly, 0 if nothing is classified: the job shows no accuracy if it is 0 for
 * all samples. A run ignores both; its operations that were not waited for go on, and the task
 * fails if one of them fails. CAPSTAN_ENDED: the run was taken away. CAPSTAN_DIVERGED: the loss or
 * the gradient is not finite; the work is ended all the same, and the task fails. */
capstan_code capstan_task_finish(capstan_task* task, double loss_sum, int64_t correct, char* error);

/* ---- own pace: between capstan_task_next, which gives CAPSTAN_RUN, and capstan_task_finish
 *
 * A push and a pull start an operation, and return its number in *operation. They return at once,
 * except while the job stands still for a checkpoint: then they wait until it goes on. Each
 * operation has to be waited for; at most 1024 are not. Operations on one table take effect in the
 * order in which they were started; a pull sees the earlier pushes of this task. If a server dies,
 * its operations continue at the next primary without new calls.
 *
 *   table       the table's index. For parameters `keys` is NULL and `count` the number of the
 *               table's elements. For rows `keys`, [key_count], are copied and may repeat, and
 *               `count` is key_count * dim.
 *   CAPSTAN_WRONG     no such table, other numbers than it has, 1024 are not waited for, or the
 *                     rows of one of its buckets take more than 60 MiB
 *   CAPSTAN_ENDED     the run is over: the task was told to stop
 */

/* Pushes a gradient, [count], which the table's optimizer applies. Values of parameters are not
 * copied: they must stay as they are until the operation was waited for. Rows are copied; the
 * gradients of a key that occurs several times are added up.
 * CAPSTAN_DIVERGED: a value is not finite, and nothing was sent. */
capstan_code capstan_task_push(capstan_task* task, int64_t table, const int64_t* keys,
                               int64_t key_count, const float* values, int64_t count,
                               int64_t* operation, char* error);

/* Pulls into `values`, [count], which are complete once the operation was waited for, and belong to
 * the library until then. A key without a row has its initial values. */
capstan_code capstan_task_pull(capstan_task* task, int64_t table, const int64_t* keys,
                               int64_t key_count, float* values, int64_t count, int64_t* operation,
                               char* error);

/* Waits at most `seconds` for an operation. After CAPSTAN_OK, CAPSTAN_FAILED and CAPSTAN_ENDED the
 * operation is forgotten, and its arrays are the caller's again.
 * CAPSTAN_TIMEOUT  it goes on; `error` says for whom it waits
 * CAPSTAN_FAILED   `error` says why
 * CAPSTAN_ENDED    the run is over; whether a push took effect is not known
 * CAPSTAN_WRONG    there is no such operation, another thread waits for it, or `seconds` < 0 */
capstan_code capstan_task_wait(capstan_task* task, int64_t operation, double seconds, char* error);

/* ---- snapshots: all tables at one moment
 *
 * A program at its own pace may open any number of snapshots, and read them while it pushes and
 * pulls. One thread at a time uses a snapshot. Servers keep the moment while it is read: if no
 * value was read for some seconds, or a server has died, reads fail, and a new snapshot must be
 * opened. A task reads its own job alone. */
typedef struct capstan_snapshot capstan_snapshot; /* Closed by capstan_snapshot_close. */

/* Opens a snapshot. Waits at most `seconds`, and at most 60, until the job stands still; it does so
 * for some milliseconds. NULL: failed, and `error` says why. */
capstan_snapshot* capstan_task_snapshot(capstan_task* task, double seconds, char* error);

/* Reads a table's values, [count], as they were; for the arguments see capstan_task_pull. Rows
 * of keys that had none are 0; found[i], [key_count], says whether keys[i] had one; found may be
 * NULL. CAPSTAN_FAILED: `error` says why. CAPSTAN_WRONG: no such table, or other numbers than it
 * has. */
capstan_code capstan_snapshot_read(capstan_snapshot* snapshot, int64_t table, const int64_t* keys,
                                   int64_t key_count, float* values, int64_t count,
                                   unsigned char* found, char* error);

void capstan_snapshot_close(capstan_snapshot* snapshot); /* Before its task is closed. */

/* The program cannot go on: the task ends with this sentence, which the job then shows. The task's
 * worker may end the process at any time from now on: write the last lines of the log before this.
 * If another thread computes meanwhile, it must not read parameters any more. */
void capstan_task_fail(capstan_task* task, const char* message);

/* Ends the task and waits until the scheduler has been told; a task that is not done fails. If its
 * run is finished, it waits for the other tasks' runs, or until one of them needs its place.
 * Returns the process's exit code. */
int capstan_task_close(capstan_task* task);

#ifdef __cplusplus
}
#endif

#endif /* CAPSTAN_WORKER_PROGRAM_CAPSTAN_CLIENT_H_ */
