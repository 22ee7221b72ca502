#include "common/job/validate_program.h"

#include <cstdint>
#include <limits>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/devices/devices_codec.h"
#include "common/types/job_limits.h"
#include "google/protobuf/repeated_ptr_field.h"

namespace capstan {
namespace {

using Tensors = google::protobuf::RepeatedPtrField<v1::Program::Tensor>;

constexpr int kArgumentsMax = 1000;
constexpr int kVariablesMax = 1000;
constexpr int kTensorsMax = 100'000;
constexpr size_t kTensorNameBytesMax = 256;
constexpr int64_t kProgramSamplesMax = std::numeric_limits<uint32_t>::max();
constexpr absl::string_view kProgramHasIt = "nothing beside program, which has its own";

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

// The fields that say what a model of ours computes.
void ValidateOthers(const v1::JobSpec& spec, FieldChecker check) {
  if (spec.has_model()) check.Wrong("model", "a value", kProgramHasIt);
  if (spec.has_data()) check.Wrong("data", "a value", kProgramHasIt);
  if (spec.optimizer().has_clip_norm()) {
    check.Wrong("optimizer.clip_norm", absl::StrCat(spec.optimizer().clip_norm()),
                "nothing beside program, which clips its gradients itself");
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

}  // namespace

void ValidateProgram(const v1::JobSpec& spec, FieldChecker check) {
  const v1::Program& program = spec.program();
  FieldChecker in = check.In("program");
  ValidateCommand(program, in);
  in.IntegerBetween("samples", program.samples(), 1, kProgramSamplesMax, Presence::kImplicit);
  if (program.parameters().empty()) in.Missing("parameters", "the tensors that it trains");
  std::set<std::string> names;
  ValidateTensors(program.parameters(), "parameters", &names, in);
  ValidateTensors(program.averages(), "averages", &names, in);
  ValidateOthers(spec, check);
}

}  // namespace capstan
