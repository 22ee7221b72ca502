#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/command_line/command.h"
#include "common/data/file_reader.h"
#include "common/data/image_file.h"
#include "common/data/image_folder.h"
#include "common/examples/files/file_ranges.h"
#include "common/examples/files/line_reader.h"
#include "common/job/parse/job_file.h"
#include "common/job/validate/validate.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/tensor/safetensors/durable_file.h"
#include "scheduler/cli/commands.h"
#include "scheduler/cli/console/console.h"
#include "scheduler/cli/console/exit_code.h"
#include "scheduler/cli/init/job_text.h"
#include "scheduler/cli/init/table_sample.h"

namespace capstan::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLinesLookedAt = 10'000;
constexpr size_t kImagesOfClass = 20;  // Images that are decoded in each class.
constexpr int64_t kImageBytesMax = int64_t{1} << 30;

struct InitArguments {
  std::string csv;
  std::string images;
  std::string test;
  std::string label;
  std::string file = "job.textproto";
  bool force = false;
};

absl::StatusOr<std::vector<std::string>> FirstLines(const std::string& pattern) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<FileRange> ranges, ListRanges({pattern}, 1 << 20));
  CAPSTAN_ASSIGN_OR_RETURN(const auto reader, LineReader::Open(ranges[0], {}));
  std::vector<std::string> lines;
  absl::string_view line;
  while (lines.size() < kLinesLookedAt) {
    CAPSTAN_ASSIGN_OR_RETURN(const bool more, reader->Next(&line));
    if (!more) break;
    lines.emplace_back(line);
  }
  return lines;
}

absl::StatusOr<std::string> Absolute(const std::string& path) {
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);
  if (error) return absl::InternalError(absl::StrCat("no working directory: ", error.message()));
  return absolute.lexically_normal().string();
}

// Makes a job's name from the name of the file or folder.
std::string JobNameOf(const std::string& path) {
  std::string name = fs::path(path).stem().string();
  for (char& c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '-') c = '_';
  }
  return name.empty() ? "job" : name.substr(0, 48);
}

absl::StatusOr<std::string> MakeCsvJob(const InitArguments& arguments) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<std::string> lines, FirstLines(arguments.csv));
  absl::StatusOr<TableSample> table = SampleTable(lines);
  if (!table.ok()) return Annotate(table.status(), arguments.csv);
  CsvJob job{.name = JobNameOf(arguments.csv), .label = arguments.label};
  CAPSTAN_ASSIGN_OR_RETURN(job.train, Absolute(arguments.csv));
  if (!arguments.test.empty()) {
    CAPSTAN_ASSIGN_OR_RETURN(job.test, Absolute(arguments.test));
  }
  absl::StatusOr<std::string> text = CsvJobText(*table, job);
  if (!text.ok()) return Annotate(text.status(), arguments.csv);
  return text;
}

// Counts all images in a folder's classes, and decodes the first kImagesOfClass of each class.
absl::StatusOr<ImagesSample> SampleImages(const std::string& folder) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<std::string> classes, ClassFolders(folder));
  ImagesSample sample{.classes = static_cast<int64_t>(classes.size())};
  for (const std::string& name : classes) {
    const std::string path = absl::StrCat(folder, "/", name);
    CAPSTAN_ASSIGN_OR_RETURN(const std::vector<std::string> images, ImagesIn(path));
    for (size_t i = 0; i < images.size(); ++i, ++sample.images) {
      if (i >= kImagesOfClass) continue;
      const std::string file = absl::StrCat(path, "/", images[i]);
      CAPSTAN_ASSIGN_OR_RETURN(const auto bytes, ReadDataFile(file, kImageBytesMax));
      CAPSTAN_ASSIGN_OR_RETURN(const DecodedImage image, DecodeImage(file, bytes, /*channels=*/3));
      const bool first = sample.images == 0;
      sample.one_size =
          sample.one_size &&
          (first || (image.shape.h == sample.least_height && image.shape.w == sample.least_width));
      sample.least_height = first ? image.shape.h : std::min(sample.least_height, image.shape.h);
      sample.least_width = first ? image.shape.w : std::min(sample.least_width, image.shape.w);
      for (size_t p = 0; p + 2 < image.pixels.size() && sample.grey; p += 3) {
        sample.grey =
            image.pixels[p] == image.pixels[p + 1] && image.pixels[p] == image.pixels[p + 2];
      }
    }
  }
  if (sample.images > 0) return sample;
  return absl::InvalidArgumentError(
      absl::StrCat(folder, ": no image in its ", classes.size(),
                   " folders, expected files that end in .jpg, .jpeg or .png"));
}

absl::StatusOr<std::string> MakeImagesJob(const InitArguments& arguments) {
  CAPSTAN_ASSIGN_OR_RETURN(const ImagesSample images, SampleImages(arguments.images));
  ImagesJob job;
  CAPSTAN_ASSIGN_OR_RETURN(job.train, Absolute(arguments.images));
  job.name = JobNameOf(job.train);
  if (!arguments.test.empty()) {
    CAPSTAN_ASSIGN_OR_RETURN(job.test, Absolute(arguments.test));
  }
  return ImagesJobText(images, job);
}

// Checks that `text` is a valid job file, for any content of the data.
absl::Status CheckText(const std::string& name, const std::string& text) {
  CAPSTAN_ASSIGN_OR_RETURN(const JobFile file, JobFile::Parse(name, text, "/"));
  std::vector<std::string> lines;
  for (const Diagnostic& diagnostic : ValidateJob(file.spec())) {
    lines.push_back(file.Render(diagnostic));
  }
  if (lines.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(lines, "\n"));
}

absl::Status Write(const InitArguments& arguments) {
  if (arguments.csv.empty() == arguments.images.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(arguments.csv.empty() ? "no data" : "two kinds of data",
                     ": expected --csv=FILE or --images=FOLDER"));
  }
  std::error_code error;
  if (!arguments.force && fs::exists(arguments.file, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat(arguments.file, " is there already; --force replaces it"));
  }
  CAPSTAN_ASSIGN_OR_RETURN(const std::string text, arguments.csv.empty() ? MakeImagesJob(arguments)
                                                                         : MakeCsvJob(arguments));
  CAPSTAN_RETURN_IF_ERROR(CheckText(arguments.file, text));
  return WriteFileDurably(arguments.file, {text});
}

}  // namespace

void AddInitCommand(Command program, CommandLine& line) {
  auto arguments = std::make_shared<InitArguments>();
  Command init = AddCommand(
      program, "init", "Write a job file with comments for your data",
      "  capstan init --csv people.csv --label income\n"
      "  capstan init --csv 'train-*.csv.gz' --test test.csv.gz my.textproto\n"
      "  capstan init --images train/ --test test/ pets.textproto\n"
      "  capstan job submit job.textproto",
      line,
      [arguments](const Settings&) {
        if (const absl::Status status = Write(*arguments); !status.ok()) return Fail(status);
        Print(absl::StrCat("wrote ", arguments->file, "\n  capstan job submit ", arguments->file,
                           "\n"));
        return kExitDone;
      },
      Concerns::kThisMachine);
  init.AddOption("FILE", arguments->file, "Where to write it").ShowDefault();
  init.AddOption("--csv", arguments->csv,
                 "Examples to train on: CSV or TSV, compressed (.gz, .zst) or not, or a glob")
      .ValueName("FILE");
  init.AddOption("--images", arguments->images,
                 "Images to train on: a folder with one for each class, of JPEG and PNG files")
      .ValueName("FOLDER");
  init.AddOption("--test", arguments->test, "Likewise to test on").ValueName("PATH");
  init.AddOption("--label", arguments->label,
                 "Which column is to be predicted: its name, or its number from 1; default: the "
                 "last")
      .ValueName("COLUMN");
  init.AddFlag("--force", arguments->force, "Replace FILE if it is there");
}

}  // namespace capstan::cli
