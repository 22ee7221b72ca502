// CheckJob: the whole check of a job, files and shapes included, before anything starts.
//
// Reads the data files, so that it takes a moment; ValidateJob alone is immediate.
// Thread safety: a pure function of the job and its files.
#ifndef CAPSTAN_COMMON_JOB_CHECK_CHECK_JOB_H_
#define CAPSTAN_COMMON_JOB_CHECK_CHECK_JOB_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/job/fields/diagnostic.h"
#include "common/model/model_plan.h"
#include "proto/job.pb.h"
#include "proto/parameter_server.pb.h"

namespace capstan {

struct JobCheck {
  std::vector<Diagnostic> diagnostics;  // Empty: the job can be run, and the rest is valid.
  // Sentences for the job's owner: about data.train, data.test and data.validation, about backups,
  // AdviseOnAsynchrony's about layers, and about tensors that training.initial_weights does not
  // match.
  std::vector<std::string> warnings;
  ModelPlan plan;                     // Models of layers; empty for other jobs.
  std::vector<v1::TableSpec> tables;  // Indexed by table.
  // Initial values (training.initial_weights), by table. Empty: the seed draws them.
  std::vector<std::vector<float>> initial_values;
  std::vector<std::string> class_names;  // Data::class_names, of IMAGE_FOLDER.
  // Split::block_examples, as they were counted. Images, and examples that are held in memory, are
  // one block.
  std::vector<int64_t> train_blocks, test_blocks, validation_blocks;
  int64_t train_count = 0;       // Images, examples, or samples or runs of a program.
  int64_t test_count = 0;        // The same; 0 without a test split.
  int64_t validation_count = 0;  // The same; 0 without a validation split.
};

// The steps are, each only if the ones before found nothing: ValidateJob; all splits are read whole
// and compared with each other, with the classes, the batch size and the augmentation; PlanModel
// and ReadInitialWeights, or MakeSparseModel for a sparse model, or ProgramTables and
// ReadInitialWeights for a program; the numbers of epochs and backups. Paths that are not absolute
// start at the working directory.
JobCheck CheckJob(const v1::JobSpec& spec);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_JOB_CHECK_CHECK_JOB_H_
