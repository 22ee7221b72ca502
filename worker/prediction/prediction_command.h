// RunPrediction: the commands `capstan predict` and `capstan evaluate`.
//
// `capstan` itself contains no arithmetic of models: its process executes capstan-worker with these
// arguments instead (scheduler/cli/prediction_command.h).
// Thread safety: main thread only.
#ifndef CAPSTAN_WORKER_PREDICTION_PREDICTION_COMMAND_H_
#define CAPSTAN_WORKER_PREDICTION_PREDICTION_COMMAND_H_

#include <string>

namespace capstan::worker {

// True if `name` is one of the two commands.
bool IsPrediction(const std::string& name);

// Runs the command argv[0] with the arguments that follow it. Returns the exit code: 0 done, 1
// failed, 2 wrong usage, or a model or data that are missing or do not fit.
int RunPrediction(int argc, const char* const* argv);

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_PREDICTION_PREDICTION_COMMAND_H_
