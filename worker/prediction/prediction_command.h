// RunPrediction: the commands `capstan predict` and `capstan evaluate`.
//
// `capstan` itself knows no arithmetic of models: it replaces itself by capstan-worker with these
// arguments (scheduler/cli/prediction_command.h).
// Thread safety: main thread only.
#ifndef CAPSTAN_WORKER_PREDICTION_PREDICTION_COMMAND_H_
#define CAPSTAN_WORKER_PREDICTION_PREDICTION_COMMAND_H_

#include <string>

namespace capstan::worker {

// Whether that is the name of such a command.
bool IsPrediction(const std::string& name);

// Runs the command argv[0] with what follows it. Returns the exit code: 0 done, 1 failed, 2 wrong
// usage, a model or data that are not there or do not fit.
int RunPrediction(int argc, const char* const* argv);

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_PREDICTION_PREDICTION_COMMAND_H_
