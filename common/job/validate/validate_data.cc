#include "common/job/validate/validate_data.h"

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/data/dataset.h"
#include "common/data/image_folder.h"
#include "common/examples/sets/column_ranges.h"
#include "common/examples/sets/parser_of_job.h"
#include "common/job/validate/validate_training.h"

namespace capstan {
namespace {

constexpr char kFormats[] =
    "one of IDX, CIFAR10_BINARY, SVMLIGHT, CRITEO, COLUMNS, TEXT, CLICK_LOG, IMAGE_FOLDER, NUMPY";
constexpr int64_t kMemoryMibMax = int64_t{1} << 40;
constexpr int64_t kClickLogExamplesMax = int64_t{1} << 48;

std::string Paths(const v1::Split& split) {
  return absl::StrCat(split.files_size(), split.files_size() == 1 ? " path" : " paths");
}

void ValidateIdxSplit(const v1::Split& split, FieldChecker check) {
  if (split.images().empty()) check.Missing("images", "the path of an IDX images file");
  if (split.labels().empty()) check.Missing("labels", "the path of an IDX labels file");
  if (split.files_size() > 0) {
    check.Wrong("files", Paths(split), "none: format IDX reads images and labels");
  }
}

void ValidateNumpySplit(const v1::Split& split, FieldChecker check) {
  constexpr absl::string_view kArray = "an array: FILE.npy, or FILE.npz:NAME";
  if (split.images().empty()) check.Missing("images", kArray);
  if (split.labels().empty()) check.Missing("labels", kArray);
  if (split.files_size() > 0) {
    check.Wrong("files", Paths(split), "none: format NUMPY reads images and labels");
  }
}

void ValidateFolderSplit(const v1::Split& split, FieldChecker check) {
  if (split.images().empty()) check.Missing("images", "the folder that has one for each class");
  constexpr absl::string_view kReads = "nothing: format IMAGE_FOLDER reads a folder of images";
  if (!split.labels().empty()) check.Wrong("labels", Quote(split.labels()), kReads);
  if (split.files_size() > 0) check.Wrong("files", Paths(split), kReads);
}

void ValidateImageFolder(const v1::ImageFolder& options, FieldChecker check) {
  constexpr int kSideMax = 4096;
  if (options.has_height()) {
    check.IntegerBetween("height", options.height(), 1, kSideMax, Presence::kExplicit);
  }
  if (options.has_width()) {
    check.IntegerBetween("width", options.width(), 1, kSideMax, Presence::kExplicit);
  }
  if (options.has_channels() && options.channels() != 1 && options.channels() != 3) {
    check.Wrong("channels", absl::StrCat(options.channels()), "1 (grey) or 3 (RGB)");
  }
}

void ValidateClassNames(const v1::Data& data, FieldChecker check) {
  const int count = data.class_names_size();
  if (count == 0) return;
  if (count == 1 || count > static_cast<int>(kImageClassesMax)) {
    check.Wrong("class_names", absl::StrCat(count, count == 1 ? " name" : " names"),
                absl::StrCat("2 to ", kImageClassesMax));
  }
  const std::set<std::string> names(data.class_names().begin(), data.class_names().end());
  if (static_cast<int>(names.size()) < count) {
    check.Wrong("class_names", "a name that stands twice", "each once");
  }
}

void ValidateClickLogSplit(const v1::Split& split, FieldChecker check) {
  if (split.files_size() > 0) {
    check.Wrong("files", Paths(split), "none: format CLICK_LOG makes its examples");
  }
  constexpr absl::string_view kMakes = "nothing: format CLICK_LOG makes its examples";
  if (!split.images().empty()) check.Wrong("images", Quote(split.images()), kMakes);
  if (!split.labels().empty()) check.Wrong("labels", Quote(split.labels()), kMakes);
  check.IntegerAtLeast("first_example", split.first_example(), 0, Presence::kExplicit);
  check.IntegerBetween("examples", split.examples(), 1, kClickLogExamplesMax, Presence::kImplicit);
}

void ValidateFilesSplit(v1::Data::Format format, const v1::Split& split, FieldChecker check) {
  const std::string reads_files =
      absl::StrCat("nothing: format ", v1::Data::Format_Name(format), " reads files");
  if (!split.images().empty()) check.Wrong("images", Quote(split.images()), reads_files);
  if (!split.labels().empty()) check.Wrong("labels", Quote(split.labels()), reads_files);
  if (split.first_example() != 0) {
    check.Wrong("first_example", absl::StrCat(split.first_example()), reads_files);
  }
  if (split.examples() != 0) {
    check.Wrong("examples", absl::StrCat(split.examples()), reads_files);
  }
  if (split.files_size() == 0) {
    check.Missing("files", format == v1::Data::CIFAR10_BINARY
                               ? "the paths of one or more CIFAR-10 files"
                               : "the paths of one or more files; *, ? and [...] are globs");
  }
  for (int i = 0; i < split.files_size(); ++i) {
    if (split.files(i).empty()) check.Missing(absl::StrCat("files[", i, "]"), "a path");
  }
}

void ValidateSplit(v1::Data::Format format, const v1::Split& split, FieldChecker check) {
  if (split.has_header() && format != v1::Data::COLUMNS) {
    check.Wrong("header", "a value", "nothing: it is for format COLUMNS");
  }
  if (format == v1::Data::FORMAT_UNSPECIFIED) return;
  if (format == v1::Data::IDX) return ValidateIdxSplit(split, check);
  if (format == v1::Data::CLICK_LOG) return ValidateClickLogSplit(split, check);
  if (format == v1::Data::NUMPY) return ValidateNumpySplit(split, check);
  if (format == v1::Data::IMAGE_FOLDER) return ValidateFolderSplit(split, check);
  ValidateFilesSplit(format, split, check);
}

void ValidateExamples(v1::Data::Format format, const v1::Examples& examples, FieldChecker check) {
  check.Real("max_bad_fraction", examples.max_bad_fraction(), Closed(0, 1), Presence::kExplicit);
  if (examples.hash_buckets() != 0 && format == v1::Data::SVMLIGHT) {
    check.Wrong("hash_buckets", absl::StrCat(examples.hash_buckets()),
                "nothing: the keys of SVMLIGHT are those that stand in the file");
  }
  if (examples.has_memory_mib()) {
    check.IntegerBetween("memory_mib", examples.memory_mib(), 0, kMemoryMibMax,
                         Presence::kExplicit);
  }
}

void ValidateColumns(const v1::Columns& columns, FieldChecker check) {
  if (columns.columns_size() == 0) {
    check.Missing("columns", "what each column of a line is, from the first to the last");
  }
  if (columns.has_separator() && columns.separator().size() != 1) {
    check.Wrong("separator", Quote(columns.separator()), "one byte, such as \",\" or \"\\t\"");
  }
  for (int i = 0; i < columns.columns_size(); ++i) {
    const v1::Column& column = columns.columns(i);
    FieldChecker in = check.In(absl::StrCat("columns[", i, "]"));
    if (!v1::Column::Kind_IsValid(column.kind())) {
      in.Wrong("kind", absl::StrCat(static_cast<int>(column.kind())),
               "SKIP, LABEL, DENSE, CATEGORY, ID or BUCKET");
    }
    if (column.has_missing()) in.Real("missing", column.missing(), Finite(), Presence::kExplicit);
    in.Real("subtract", column.subtract(), Finite(), Presence::kExplicit);
    if (in.Real("divide", column.divide(), Finite(), Presence::kExplicit) && column.has_divide() &&
        column.divide() == 0) {
      in.Wrong("divide", "0", "another number");
    }
  }
  std::vector<const v1::Column*> line;
  if (const auto error = ColumnsOfLine(columns, &line); error.has_value()) {
    check.In(absl::StrCat("columns[", error->index, "]"))
        .Wrong("range", error->found, error->expected);
  }
}

// Checks the fields that only examples, only images or only one format may have.
void ValidateForExamples(const v1::Data& data, FieldChecker check) {
  const auto only = [&](const char* field, bool there, bool may_be, const char* whose) {
    if (there && !may_be) {
      check.Wrong(field, "a value",
                  absl::StrCat("nothing: it is for ", whose, ", and format is ",
                               v1::Data::Format_Name(data.format())));
    }
    return there && may_be;
  };
  const v1::Data::Format format = data.format();
  const bool is_text = IsExampleFormat(format) && format != v1::Data::CLICK_LOG;
  if (only("examples", data.has_examples(), is_text, "files of examples")) {
    ValidateExamples(format, data.examples(), check.In("examples"));
  }
  if (only("columns", data.has_columns(), format == v1::Data::COLUMNS, "COLUMNS") ||
      format == v1::Data::COLUMNS) {
    ValidateColumns(data.columns(), check.In("columns"));
  }
  if (only("text", data.has_text(), format == v1::Data::TEXT, "TEXT") &&
      data.text().has_words_max()) {
    check.IntegerAtLeast("text.words_max", data.text().words_max(), 1, Presence::kExplicit);
  }
  only("click_log", data.has_click_log(), format == v1::Data::CLICK_LOG, "CLICK_LOG");
  only("augmentation", data.has_augmentation(), !IsExampleFormat(format), "images");
  const bool folder = format == v1::Data::IMAGE_FOLDER;
  if (only("image_folder", data.has_image_folder(), folder, "IMAGE_FOLDER")) {
    ValidateImageFolder(data.image_folder(), check.In("image_folder"));
  }
  if (only("class_names", data.class_names_size() > 0, folder, "IMAGE_FOLDER")) {
    ValidateClassNames(data, check);
  }
}

void ValidateAugmentation(v1::Data::Format format, const v1::Augmentation& augmentation,
                          FieldChecker check) {
  const int channels = ImageChannels(format);
  const auto length = [&](absl::string_view field, int count) {
    if (count == 0 || channels == 0 || count == channels) return;
    check.Wrong(
        field, absl::StrCat(count, count == 1 ? " value" : " values"),
        absl::StrCat(channels, ", one a channel of format ", v1::Data::Format_Name(format)));
  };
  length("mean", augmentation.mean_size());
  length("std", augmentation.std_size());
  for (int i = 0; i < augmentation.mean_size(); ++i) {
    check.Real(absl::StrCat("mean[", i, "]"), augmentation.mean(i), Finite(), Presence::kExplicit);
  }
  for (int i = 0; i < augmentation.std_size(); ++i) {
    check.Real(absl::StrCat("std[", i, "]"), augmentation.std(i), Above(0), Presence::kExplicit);
  }
  check.IntegerAtLeast("crop_padding", augmentation.crop_padding(), 0, Presence::kExplicit);
}

}  // namespace

int ImageChannels(v1::Data::Format format) {
  if (format == v1::Data::IDX) return 1;
  if (format == v1::Data::CIFAR10_BINARY) return 3;
  return 0;
}

void ValidateData(const v1::Data& data, FieldChecker check) {
  if (data.format() == v1::Data::FORMAT_UNSPECIFIED) {
    check.Missing("format", kFormats);
  } else if (!v1::Data::Format_IsValid(data.format())) {
    check.Wrong("format", absl::StrCat(static_cast<int>(data.format())), kFormats);
    return;
  }
  if (data.has_train()) {
    ValidateSplit(data.format(), data.train(), check.In("train"));
  } else {
    check.Missing("train", "the files to train on");
  }
  if (data.has_test()) ValidateSplit(data.format(), data.test(), check.In("test"));
  if (data.has_validation()) {
    ValidateSplit(data.format(), data.validation(), check.In("validation"));
  }
  if (data.format() != v1::Data::FORMAT_UNSPECIFIED) ValidateForExamples(data, check);
  if (IsExampleFormat(data.format())) return;
  ValidateAugmentation(data.format(), data.augmentation(), check.In("augmentation"));
}

void ValidateModelFitsData(const v1::JobSpec& spec, FieldChecker check) {
  const v1::Data::Format format = spec.data().format();
  if (format == v1::Data::FORMAT_UNSPECIFIED || !v1::Data::Format_IsValid(format)) return;
  const std::string is = absl::StrCat(", as data.format is ", v1::Data::Format_Name(format));
  const v1::Model& model = spec.model();
  if (IsExampleFormat(format) != model.has_sparse()) {
    if (model.has_sparse()) {
      check.Wrong("model", "sparse", absl::StrCat("layers or zoo", is));
    } else if (!model.zoo().empty() || model.layers_size() > 0) {
      check.Wrong("model", model.zoo().empty() ? "layers" : "zoo", absl::StrCat("sparse", is));
    }
    return;
  }
  const bool of_classes = LabelsOf(model) == LabelKind::kClasses;
  if (!of_classes && format != v1::Data::NUMPY) {
    check.Wrong("model.loss", LossName(model),
                absl::StrCat("softmax_cross_entropy", is,
                             ", whose labels are classes; those of NUMPY may be numbers"));
  }
  if (format == v1::Data::NUMPY && of_classes && !model.has_classes()) {
    check.Missing("model.classes", "the number of classes, which format NUMPY does not tell");
  }
  if (!model.has_sparse() || model.sparse().kind_case() == v1::SparseModel::KIND_NOT_SET) return;
  const bool text = format == v1::Data::TEXT;
  if (text == model.sparse().has_skip_gram()) return;
  check.Wrong("model.sparse", text ? "a model of examples with labels" : "skip_gram",
              absl::StrCat(text ? "skip_gram" : "another model: skip_gram is for TEXT", is));
}

}  // namespace capstan
