#include "scheduler/testing/small_job.h"

#include <cstdint>
#include <fstream>

namespace capstan::scheduler::testing {
namespace {

constexpr int kSide = 4;
constexpr uint32_t kImagesMagic = 0x803;
constexpr uint32_t kLabelsMagic = 0x801;

void WriteWord(std::ofstream& file, uint32_t word) {
  for (int shift = 24; shift >= 0; shift -= 8) file.put(static_cast<char>(word >> shift));
}

void WriteSplit(const std::string& folder, int count, v1::Split& split) {
  split.set_images(folder + "/images-" + std::to_string(count));
  split.set_labels(folder + "/labels-" + std::to_string(count));
  std::ofstream images(split.images(), std::ios::binary);
  WriteWord(images, kImagesMagic);
  for (const int size : {count, kSide, kSide}) WriteWord(images, static_cast<uint32_t>(size));
  for (int i = 0; i < count * kSide * kSide; ++i) images.put(static_cast<char>(i));
  std::ofstream labels(split.labels(), std::ios::binary);
  WriteWord(labels, kLabelsMagic);
  WriteWord(labels, static_cast<uint32_t>(count));
  for (int i = 0; i < count; ++i) labels.put(static_cast<char>(i % 10));
}

}  // namespace

v1::JobSpec MakeSmallJob(const std::string& folder) {
  v1::JobSpec spec;
  spec.set_name("small");
  spec.mutable_model()->set_zoo("softmax_regression");
  spec.mutable_data()->set_format(v1::Data::IDX);
  WriteSplit(folder, kSmallTrainCount, *spec.mutable_data()->mutable_train());
  WriteSplit(folder, kSmallTestCount, *spec.mutable_data()->mutable_test());
  spec.mutable_training()->set_epochs(2);
  spec.mutable_training()->set_batch_size(10);
  spec.mutable_optimizer()->mutable_sgd();
  spec.mutable_optimizer()->set_learning_rate(0.1f);
  spec.mutable_consistency()->mutable_ssp()->set_staleness_bound(2);
  spec.mutable_resources()->set_workers(1);
  return spec;
}

}  // namespace capstan::scheduler::testing
