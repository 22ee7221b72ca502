#include "common/data/image_folder.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/data/file_reader.h"
#include "common/data/image_file.h"
#include "common/model/plan_model.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/storage/files/path_access.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kFileBytesMax = int64_t{1} << 30;

bool IsImage(const fs::path& path) {
  const std::string end = absl::AsciiStrToLower(path.extension().string());
  return end == ".jpg" || end == ".jpeg" || end == ".png";
}

// Whether the entry of the folder, or what it links to, is of `type` (DT_DIR, DT_REG).
bool IsOfType(const std::string& folder, const dirent& entry, unsigned char type) {
  if (entry.d_type != DT_LNK && entry.d_type != DT_UNKNOWN) return entry.d_type == type;
  struct stat status;
  return StatPath(absl::StrCat(folder, "/", entry.d_name), &status) == 0 &&
         IFTODT(status.st_mode) == type;
}

absl::Status ListError(const std::string& folder, int error) {
  const std::string message = absl::StrCat(folder, ": ", std::strerror(error));
  const bool denied = error == EACCES || error == ELOOP;
  return denied ? absl::PermissionDeniedError(message) : absl::NotFoundError(message);
}

// Lists the names of the `wanted` entries of the folder, sorted by their bytes.
template <typename Wanted>
absl::StatusOr<std::vector<std::string>> NamesIn(const std::string& folder, const Wanted& wanted) {
  CAPSTAN_RETURN_IF_ERROR(Annotate(CheckConfined(folder), folder));
  std::vector<std::string> names;
  DIR* entries = OpenFolder(folder);
  if (entries == nullptr) return ListError(folder, errno);
  errno = 0;
  while (const dirent* entry = readdir(entries)) {
    if (entry->d_name[0] != '.' && wanted(*entry)) names.emplace_back(entry->d_name);
    errno = 0;
  }
  const int error = errno;
  closedir(entries);
  if (error != 0) return ListError(folder, error);
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<std::vector<std::string>> FoldersIn(const std::string& folder) {
  return NamesIn(folder, [&](const dirent& entry) { return IsOfType(folder, entry, DT_DIR); });
}

// Reads one class after the other into one dataset.
class Loader {
 public:
  Loader(const v1::ImageFolder& options, int64_t bytes_max)
      : options_(options), bytes_max_(bytes_max) {}

  absl::Status AddClass(const std::string& folder, uint8_t label) {
    CAPSTAN_ASSIGN_OR_RETURN(const std::vector<std::string> names, ImagesIn(folder));
    for (const std::string& name : names) {
      CAPSTAN_RETURN_IF_ERROR(AddImage(absl::StrCat(folder, "/", name), label));
    }
    return absl::OkStatus();
  }

  Dataset Take() && { return std::move(dataset_); }

 private:
  absl::Status AddImage(const std::string& path, uint8_t label) {
    CAPSTAN_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, ReadDataFile(path, kFileBytesMax));
    const int channels = options_.has_channels() ? options_.channels() : 3;
    CAPSTAN_ASSIGN_OR_RETURN(DecodedImage image, DecodeImage(path, bytes, channels));
    image = ScaleImage(image, options_.has_height() ? options_.height() : image.shape.h,
                       options_.has_width() ? options_.width() : image.shape.w);
    if (dataset_.count == 0) {
      dataset_.shape = image.shape;
      first_path_ = path;
    }
    if (!(image.shape == dataset_.shape)) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": is ", ToString(image.shape), ", expected ", ToString(dataset_.shape), " as ",
          first_path_, "; data.image_folder { height: ... width: ... } scales all images"));
    }
    if (dataset_.pixels.size() + image.pixels.size() > static_cast<size_t>(bytes_max_)) {
      return absl::DataLossError(absl::StrCat(path, ": more than ", bytes_max_,
                                              " bytes of pixels up to here, expected no more"));
    }
    dataset_.pixels.insert(dataset_.pixels.end(), image.pixels.begin(), image.pixels.end());
    dataset_.labels.push_back(label);
    ++dataset_.count;
    return absl::OkStatus();
  }

  const v1::ImageFolder options_;
  const int64_t bytes_max_;
  std::string first_path_;
  Dataset dataset_;
};

}  // namespace

absl::StatusOr<std::vector<std::string>> ClassFolders(const std::string& folder) {
  CAPSTAN_ASSIGN_OR_RETURN(std::vector<std::string> names, FoldersIn(folder));
  if (names.size() >= 2 && names.size() <= kImageClassesMax) return names;
  return absl::InvalidArgumentError(absl::StrCat(folder, ": has ", names.size(),
                                                 " folders, expected one for each class, 2 to ",
                                                 kImageClassesMax));
}

absl::StatusOr<std::vector<std::string>> ImagesIn(const std::string& folder) {
  return NamesIn(folder, [&](const dirent& entry) {
    return IsImage(entry.d_name) && IsOfType(folder, entry, DT_REG);
  });
}

absl::StatusOr<Dataset> LoadImageFolder(const std::string& folder,
                                        absl::Span<const std::string> classes,
                                        const v1::ImageFolder& options, int64_t bytes_max) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<std::string> folders, FoldersIn(folder));
  for (const std::string& name : folders) {
    if (std::find(classes.begin(), classes.end(), name) != classes.end()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        folder, "/", name, ": is no class, expected one of ", absl::StrJoin(classes, ", ")));
  }
  Loader loader(options, bytes_max);
  for (size_t label = 0; label < classes.size(); ++label) {
    if (!std::binary_search(folders.begin(), folders.end(), classes[label])) continue;
    CAPSTAN_RETURN_IF_ERROR(
        loader.AddClass(absl::StrCat(folder, "/", classes[label]), static_cast<uint8_t>(label)));
  }
  Dataset dataset = std::move(loader).Take();
  dataset.classes = static_cast<int64_t>(classes.size());
  if (dataset.count > 0) return dataset;
  return absl::InvalidArgumentError(absl::StrCat(
      folder, ": no image in any class, expected files that end in .jpg, .jpeg or .png"));
}

}  // namespace capstan
