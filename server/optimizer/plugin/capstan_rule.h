// capstan_rule.h: the C interface of update rules that an operator adds to servers
// (`capstan-server --rule-plugin=FILE`). signum.c is an example.
/*
 * A plugin is a shared library with one function, capstan_rule_plugin. It needs this header and no
 * library of Capstan:
 *
 *   cc -O2 -ffp-contract=off -shared -fPIC -I FOLDER_OF_THIS_HEADER signum.c -o signum.so
 *
 * A rule updates ranges of elements. The server decides how a table is cut into ranges, which
 * differs from server to server and from update to update, so a rule treats each element by itself:
 * the new weight and state of an element follow, bit for bit, from its weight, gradient and state
 * and from `numbers`, `step` and `learning_rate`. The server tries this when it loads the plugin,
 * and refuses a plugin whose bits depend on the range, its place in memory or the call before.
 * -ffast-math and vector instructions for parts of a range alone are what usually breaks it.
 * + - * / and sqrtf give the same bits everywhere; expf, logf and powf may differ between
 * processors, and then only servers with one kind of processor give the same bits.
 *
 * Thread safety: the server calls the functions of a rule from several threads at a time.
 */
#ifndef CAPSTAN_SERVER_OPTIMIZER_PLUGIN_CAPSTAN_RULE_H_
#define CAPSTAN_SERVER_OPTIMIZER_PLUGIN_CAPSTAN_RULE_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CAPSTAN_RULE_INTERFACE 1

#define CAPSTAN_RULE_STATES_MAX 3
#define CAPSTAN_RULE_NUMBERS_MAX 16

/* Everything that a pointer here points to stays as it is until the process ends. */
typedef struct {
  const char* name;    /* As in job files: 1 to 64 letters a-z, digits and '_', a letter first. */
  int32_t state_count; /* Floats of state that an element has, 0 to CAPSTAN_RULE_STATES_MAX. */
  float initial_state[CAPSTAN_RULE_STATES_MAX]; /* The initial value of each; finite. */
  /* Not 0: in tables of rows `step` counts the updates of each row, as Adam needs it. 0: those of
   * the table. */
  int32_t counts_updates;
  int32_t number_count;          /* Numbers of a job, 0 to CAPSTAN_RULE_NUMBERS_MAX. */
  const double* default_numbers; /* [number_count]: those of a job that gives none. */
  /* Returns NULL if these [number_count] finite numbers can be used, or a sentence that says which
   * cannot and what was expected. May be NULL: all can. */
  const char* (*check)(const double* numbers);
  /* Writes the weights after update number `step`, from 0, of n >= 0 elements to `out`, and their
   * new state over the old one.
   *   learning_rate  of this update: the schedule's value, warm-up included
   *   in, out        [n] weights before and after; the same memory or disjoint
   *   gradient       [n] clipped by the job's clip_value, its weight_decay * weight added
   *   state          state_count arrays of [n]; disjoint from each other, in and out
   * Pointers are aligned to 4 bytes. A value may be infinite or NaN. */
  void (*apply)(const double* numbers, uint64_t step, double learning_rate, int64_t n,
                const float* in, const float* gradient, float* const* state, float* out);
} CapstanRule;

typedef struct {
  int32_t interface;  /* CAPSTAN_RULE_INTERFACE of the header that the plugin was built with. */
  int32_t rule_count; /* 1 to 64. */
  const CapstanRule* rules;
} CapstanRulePlugin;

/* The plugin defines it. */
__attribute__((visibility("default"))) const CapstanRulePlugin* capstan_rule_plugin(void);

#ifdef __cplusplus
}
#endif

#endif  // CAPSTAN_SERVER_OPTIMIZER_PLUGIN_CAPSTAN_RULE_H_
