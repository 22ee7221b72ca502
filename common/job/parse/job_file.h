// JobFile: a job as the user wrote it, whose errors are reported with file, line and column.
//
//   CAPSTAN_ASSIGN_OR_RETURN(JobFile file, JobFile::Load("job.textproto"));
//   CAPSTAN_RETURN_IF_ERROR(file.Set("training.epochs=3"));
//   for (const Diagnostic& d : ValidateJob(file.spec())) puts(file.Render(d).c_str());
//       job.textproto:12:3: training.batch_size: got -4, expected at least 1
//
// Relative paths in the job (data files, output folder) start at the job file's folder and are made
// absolute, so that daemons need not know the user's working directory.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_JOB_PARSE_JOB_FILE_H_
#define CAPSTAN_COMMON_JOB_PARSE_JOB_FILE_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/job/fields/diagnostic.h"
#include "common/job/fields/field_positions.h"
#include "proto/job.pb.h"

namespace capstan {

class JobFile {
 public:
  // Reads `path`: JSON if it ends in ".json" or its first byte that is no space is '{', else
  // protobuf's text format. Does not validate. Errors: kNotFound, kPermissionDenied  the file;
  // kInvalidArgument  it is a folder, larger than 16 MiB, or malformed: then the message has a line
  // for each error, in Render's form.
  static absl::StatusOr<JobFile> Load(const std::string& path);

  // The same from memory. `name` stands for the file in messages, `folder` is where relative paths
  // start.
  static absl::StatusOr<JobFile> Parse(const std::string& name, const std::string& text,
                                       const std::string& folder);

  // Makes a JobFile of a job that has no file of its own, such as that of a model. Messages have
  // `name` and no position.
  static JobFile OfSpec(std::string name, v1::JobSpec spec);

  // Overrides one field: "training.epochs=3", "model.layers[0].convolution.filters=32",
  // "consistency.ssp.staleness_bound=4", "data.train.images=/data/images" (quotes may be left out).
  // A list is replaced by the one value. Relative paths are taken from the working directory.
  // Errors: kInvalidArgument  no '=', no such field, or a value that does not fit; the job is
  // unchanged.
  absl::Status Set(const std::string& assignment);

  // Takes from `base` the fields that this job lacks. What both have, also a list, a kind of
  // optimizer or a value that was overridden before, stays this job's; maps have the keys of both.
  void FillIn(const JobFile& base);

  const v1::JobSpec& spec() const { return spec_; }
  const std::string& name() const { return name_; }

  // "file:line:column: field: message". A field that is missing is reported where its message
  // begins (or with the file's name alone), one that was overridden with "--set assignment: ".
  std::string Render(const Diagnostic& diagnostic) const;
  // OK if there are none, else kInvalidArgument with a line for each.
  absl::Status Refusal(const std::vector<Diagnostic>& diagnostics) const;

 private:
  std::string name_;
  v1::JobSpec spec_;
  FieldPositions positions_;
  std::map<std::string, std::string> overrides_;  // Field path -> the assignment.
  // The names of the jobs that FillIn was given, and the positions of their fields.
  std::vector<std::pair<std::string, FieldPositions>> bases_;
};

// Makes the job's relative paths absolute, starting at `folder` (absolute), and removes the steps
// "." and ".." from all of them: daemons refuse such paths.
void ResolvePaths(const std::string& folder, v1::JobSpec* spec);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_JOB_PARSE_JOB_FILE_H_
