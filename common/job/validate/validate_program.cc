#include "common/job/validate/validate_program.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/devices/devices_codec.h"
#include "common/job/spec/consistency_of.h"
#include "common/job/spec/program_tables.h"
#include "common/job/validate/validate_optimizer.h"
#include "common/job/validate/validate_sparse_model.h"
#include "common/model/tables.h"
#include "common/types/job_limits.h"
#include "google/protobuf/repeated_ptr_field.h"

namespace capstan {
namespace {

using Tensors = google::protobuf::RepeatedPtrField<v1::Program::Tensor>;

constexpr int kArgumentsMax = 1000;
constexpr int kVariablesMax = 1000;
constexpr int kTensorsMax = 100'000;
constexpr size_t kTensorNameBytesMax = 256;
constexpr int kRowTablesMax = 100;
constexpr size_t kRowTableNameBytesMax = 64;
constexpr int kOptimizersMax = 100;
constexpr int kOwnTablesMax = 1000;  // Tensors that are tables of their own.
constexpr int64_t kProgramSamplesMax = std::numeric_limits<uint32_t>::max();
constexpr absl::string_view kClipsItself =
    "nothing beside program, which clips its gradients itself";
constexpr absl::string_view kProgramHasIt = "nothing beside program, which has its own";
constexpr absl::string_view kNoneAtOwnPace =
    "nothing beside program.own_pace: the program itself says what it computes";

bool IsVariableName(absl::string_view name) {
  return !name.empty() && !absl::StrContains(name, '=') && !absl::StrContains(name, '\0');
}

void ValidateCommand(const v1::Program& program, FieldChecker check) {
  if (program.command().empty()) check.Missing("command", "the program and its arguments");
  if (program.command_size() > kArgumentsMax) {
    check.Wrong("command", absl::StrCat(program.command_size(), " arguments"),
                absl::StrCat("at most ", kArgumentsMax));
  }
  if (program.command_size() > 0 && program.command(0).empty()) {
    check.Missing("command[0]", "a path, or a name that is found on PATH");
  }
  for (int i = 0; i < program.command_size(); ++i) {
    if (!absl::StrContains(program.command(i), '\0')) continue;
    check.Wrong(absl::StrCat("command[", i, "]"), Quote(program.command(i)), "text without NUL");
  }
  if (!program.directory().empty() && !absl::StartsWith(program.directory(), "/")) {
    check.Wrong("directory", Quote(program.directory()), "an absolute path");
  }
  if (program.environment_size() > kVariablesMax) {
    check.Wrong("environment", absl::StrCat(program.environment_size(), " variables"),
                absl::StrCat("at most ", kVariablesMax));
  }
  for (const auto& [name, value] : program.environment()) {
    if (IsVariableName(name) && !absl::StrContains(value, '\0')) continue;
    check.Wrong("environment", Quote(name), "a name without '=', and no NUL in name or value");
  }
}

// `elements` counts those of the table so far.
void ValidateTensor(const v1::Program::Tensor& tensor, std::set<std::string>* names,
                    int64_t* elements, FieldChecker check) {
  if (tensor.name().empty() || tensor.name().size() > kTensorNameBytesMax) {
    check.Wrong("name", Quote(tensor.name()), absl::StrCat("1 to ", kTensorNameBytesMax, " bytes"));
  } else if (!names->insert(tensor.name()).second) {
    check.Wrong("name", Quote(tensor.name()), "a name that no other tensor has");
  }
  int64_t count = 1;
  for (int i = 0; i < tensor.shape_size(); ++i) {
    const int64_t size = tensor.shape(i);
    if (!check.IntegerBetween(absl::StrCat("shape[", i, "]"), size, 1, kTableElementsMax / count,
                              Presence::kExplicit)) {
      return;
    }
    count *= size;
  }
  if (count <= kTableElementsMax - *elements) {
    *elements += count;
  } else {
    check.Wrong("shape", absl::StrCat(count, " elements"),
                absl::StrCat("at most ", kTableElementsMax, " in all tensors together"));
  }
}

void ValidateTensors(const Tensors& tensors, absl::string_view field, std::set<std::string>* names,
                     FieldChecker check) {
  if (tensors.size() > kTensorsMax) {
    check.Wrong(field, absl::StrCat(tensors.size(), " tensors"),
                absl::StrCat("at most ", kTensorsMax));
    return;
  }
  int64_t elements = 0;
  for (int i = 0; i < tensors.size(); ++i) {
    ValidateTensor(tensors[i], names, &elements, check.In(absl::StrCat(field, "[", i, "]")));
  }
}

void ValidateOptimizerNumber(const v1::Program& program, int number, FieldChecker check) {
  check.IntegerBetween("optimizer", number, 0, program.optimizers_size(), Presence::kExplicit);
}

// Table names have the characters of file names.
bool IsTableName(absl::string_view name) {
  const auto fits = [](char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '-';
  };
  return !name.empty() && name.size() <= kRowTableNameBytesMax &&
         std::all_of(name.begin(), name.end(), fits);
}

// Names that ProgramTables gives are refused.
bool IsRowTableName(absl::string_view name) {
  return IsTableName(name) && name != "statistics" && name != "parameters" &&
         !absl::StartsWith(name, "parameters-");
}

void ValidateRows(const v1::Program& program, std::set<std::string>* names, FieldChecker check) {
  if (program.rows_size() > kRowTablesMax) {
    check.Wrong("rows", absl::StrCat(program.rows_size(), " tables"),
                absl::StrCat("at most ", kRowTablesMax));
    return;
  }
  for (int i = 0; i < program.rows_size(); ++i) {
    const v1::Program::Rows& rows = program.rows(i);
    FieldChecker in = check.In(absl::StrCat("rows[", i, "]"));
    if (!IsRowTableName(rows.name())) {
      in.Wrong("name", Quote(rows.name()),
               absl::StrCat("1 to ", kRowTableNameBytesMax,
                            " letters, digits, '_', '.' or '-', and not the name of another table: "
                            "parameters, parameters-N, statistics"));
    } else if (!names->insert(rows.name()).second) {
      in.Wrong("name", Quote(rows.name()), "a name that nothing else in the program has");
    }
    in.IntegerBetween("dim", rows.dim(), 1, kSparseDimMax, Presence::kImplicit);
    if (rows.has_initial_std()) {
      in.Real("initial_std", rows.initial_std(), AtLeast(0), Presence::kExplicit);
    }
    const int32_t buckets = rows.has_buckets() ? rows.buckets() : kRowBucketsDefault;
    in.IntegerBetween("buckets", buckets, 1, kSparseBucketsMax, Presence::kExplicit);
    ValidateRowLifetime(rows.lifetime(), buckets, in.In("lifetime"));
    ValidateOptimizerNumber(program, rows.optimizer(), in);
  }
}

// Checks the program's own optimizers, and which of them tensors and rows name.
void ValidateOptimizers(const v1::JobSpec& spec, FieldChecker check) {
  const v1::Program& program = spec.program();
  if (program.optimizers_size() > kOptimizersMax) {
    check.Wrong("optimizers", absl::StrCat(program.optimizers_size()),
                absl::StrCat("at most ", kOptimizersMax));
    return;
  }
  for (int i = 0; i < program.optimizers_size(); ++i) {
    const v1::Optimizer& optimizer = program.optimizers(i);
    FieldChecker in = check.In(absl::StrCat("optimizers[", i, "]"));
    ValidateOptimizer(optimizer, UpdatesRows(spec, i + 1), in);
    if (optimizer.has_clip_norm()) {
      in.Wrong("clip_norm", absl::StrCat(optimizer.clip_norm()), kClipsItself);
    }
  }
  for (int i = 0; i < program.parameters_size(); ++i) {
    const int number = program.parameters(i).optimizer();
    FieldChecker in = check.In(absl::StrCat("parameters[", i, "]"));
    ValidateOptimizerNumber(program, number, in);
    const bool ftrl = number > 0 && number <= program.optimizers_size() &&
                      program.optimizers(number - 1).has_ftrl();
    if (ftrl && !spec.training().initial_weights().empty()) {
      in.Wrong("optimizer", absl::StrCat(number, ", ftrl"),
               "another with training.initial_weights: ftrl makes each weight from its gradients "
               "alone");
    }
  }
  for (int i = 0; i < program.averages_size(); ++i) {
    const int number = program.averages(i).optimizer();
    if (number == 0) continue;
    check.Wrong(absl::StrCat("averages[", i, "].optimizer"), absl::StrCat(number),
                "nothing: averages have none");
  }
}

// Refuses the fields that a job may not have beside a program.
void ValidateOthers(const v1::JobSpec& spec, FieldChecker check) {
  if (spec.has_model()) check.Wrong("model", "a value", kProgramHasIt);
  if (spec.has_data()) check.Wrong("data", "a value", kProgramHasIt);
  if (spec.optimizer().has_clip_norm()) {
    check.Wrong("optimizer.clip_norm", absl::StrCat(spec.optimizer().clip_norm()), kClipsItself);
  }
  const auto device = DeviceNeedOf(spec.resources());
  if (device && device->kind != DeviceNeed::Kind::kCpu) {
    check.Wrong("resources.device", Quote(spec.resources().device()),
                "\"cpu\": no GPUs are given to programs");
  }
  if (spec.output().trace_batches() > 0) {
    check.Wrong("output.trace_batches", absl::StrCat(spec.output().trace_batches()),
                "0 beside program");
  }
}

// Refuses what a program at its own pace may not have, and checks its tables' names.
void ValidateOwnPace(const v1::JobSpec& spec, FieldChecker check) {
  const v1::Program& program = spec.program();
  FieldChecker in = check.In("program");
  if (program.samples() != 0) in.Wrong("samples", absl::StrCat(program.samples()), kNoneAtOwnPace);
  if (program.test_samples() != 0) {
    in.Wrong("test_samples", absl::StrCat(program.test_samples()), kNoneAtOwnPace);
  }
  if (program.averages_size() > 0) {
    in.Wrong("averages", absl::StrCat(program.averages_size(), " tensors"),
             "nothing beside own_pace: each table has an optimizer");
  }
  if (program.parameters_size() > kOwnTablesMax) {
    in.Wrong("parameters", absl::StrCat(program.parameters_size(), " tensors"),
             absl::StrCat("at most ", kOwnTablesMax, " beside own_pace"));
  }
  for (int i = 0; i < program.parameters_size(); ++i) {
    if (IsTableName(program.parameters(i).name())) continue;
    in.Wrong(absl::StrCat("parameters[", i, "].name"), Quote(program.parameters(i).name()),
             absl::StrCat("1 to ", kRowTableNameBytesMax,
                          " letters, digits, '_', '.' or '-' beside own_pace: it names a table"));
  }
  const v1::Consistency::Asp& asp = spec.consistency().asp();
  if (!spec.consistency().has_asp()) {
    check.Wrong("consistency", NameOf(ConsistencyOf(spec).mode), "asp beside program.own_pace");
  }
  if (asp.cached_rows() != 0) {
    check.Wrong("consistency.asp.cached_rows", absl::StrCat(asp.cached_rows()), kNoneAtOwnPace);
  }
  if (spec.checkpoints().every_iterations() != 0) {
    check.Wrong("checkpoints.every_iterations", absl::StrCat(spec.checkpoints().every_iterations()),
                "every_seconds beside program.own_pace, which has no iterations");
  }
  const v1::Training& training = spec.training();
  const auto none = [&check](const char* field, int64_t value) {
    if (value == 0) return;
    check.Wrong(absl::StrCat("training.", field), absl::StrCat(value), kNoneAtOwnPace);
  };
  none("epochs", training.epochs());
  none("batch_size", training.batch_size());
  none("iterations_max", training.iterations_max());
}

}  // namespace

void ValidateProgram(const v1::JobSpec& spec, FieldChecker check) {
  const v1::Program& program = spec.program();
  FieldChecker in = check.In("program");
  ValidateCommand(program, in);
  if (program.own_pace()) {
    ValidateOwnPace(spec, check);
  } else {
    in.IntegerBetween("samples", program.samples(), 1, kProgramSamplesMax, Presence::kImplicit);
    in.IntegerBetween("test_samples", program.test_samples(), 0, kProgramSamplesMax,
                      Presence::kExplicit);
  }
  if (program.parameters().empty() && program.rows().empty()) {
    in.Missing("parameters", "the tensors that it trains, or rows");
  }
  std::set<std::string> names;
  ValidateTensors(program.parameters(), "parameters", &names, in);
  ValidateTensors(program.averages(), "averages", &names, in);
  ValidateRows(program, &names, in);
  ValidateOptimizers(spec, in);
  ValidateOthers(spec, check);
}

}  // namespace capstan
