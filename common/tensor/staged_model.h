// Staged models: a model lies whole in a folder of its own before its files get the names by which
// users know them.
//
//   <folder>/.export-0-17/   model.safetensors, ..., model.json: as one incarnation wrote them
//   <folder>/                the same files, once PublishModel has moved them there
//
// A task that is taken for dead may wake long after others have gone on without it. It still writes
// into its own folder, where it harms nobody; the process that moves the files decides which model
// counts.
// Thread safety: pure but for the files. Calls that publish into one folder must not overlap.
#ifndef CAPSTAN_COMMON_TENSOR_STAGED_MODEL_H_
#define CAPSTAN_COMMON_TENSOR_STAGED_MODEL_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/types/ids.h"

namespace capstan {

// Moves the model in the folder `staged` into `folder`, of the same file system, durably; its
// manifest last. First removes what incarnations before `exporter` have staged in `folder`: if one
// of them was ordered to move its model, and was stopped before it did, it then finds nothing to
// put over this one. Continues where an earlier call was interrupted: if `folder` already has the
// manifest of `job` by `exporter`, the incarnation that wrote the model, it was published before.
// Errors (what was moved stays so): kNotFound  there is no model in `staged`.
//                                   kDataLoss  its manifest is none.
//                                   kFailedPrecondition  `folder` is another file system.
//                                   else       those of the operating system.
absl::Status PublishModel(const std::string& staged, const std::string& folder, const JobId& job,
                          Incarnation exporter);

// A folder that a task writes a model into, or has left: ".export-<rank>-<incarnation>".
struct StagedModel {
  std::string path;
  Incarnation writer;
};

// Lists every staged model in `folder`, whoever wrote it. Empty if the folder cannot be read.
std::vector<StagedModel> StagedModelsIn(const std::string& folder);

// Removes such a folder and what is in it; no effect on a path of any other name. What cannot be
// removed stays.
void RemoveStagedModel(const std::string& staged);

// Removes what incarnations up to `last` have left in `folder`, for any job. A whole model that is
// newer than the one in `folder` stays: it could not be moved, and is the only copy. REQUIRES: no
// model of theirs is to be published. An incarnation that still writes may fail.
void RemoveStagedModelsUpTo(Incarnation last, const std::string& folder);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_TENSOR_STAGED_MODEL_H_
