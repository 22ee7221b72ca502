#include "worker/training/step/host_copies.h"

#include <algorithm>
#include <cstring>

namespace capstan::worker {
namespace {

// A block stays in the second-level cache; several of them outweigh the cost of waking a thread.
constexpr int64_t kBlockBytes = 128 << 10;
constexpr int64_t kSharedBytesMin = 4 * kBlockBytes;  // One thread makes smaller copies alone.

// Copies numbers. `exponent` masks the bits that are all set only in infinities and NaN.
template <typename Word>
bool CopyWords(const char* from, int64_t count, Word exponent, char* to) {
  constexpr int64_t kRow = 32;  // Constant, so that the compiler vectorises the loop over it.
  Word rows[kRow] = {};         // Nonzero if a number in this column was not finite.
  const auto take = [&](int64_t begin, int64_t n) {
    Word words[kRow] = {};
    const auto at = static_cast<size_t>(begin) * sizeof(Word);
    const auto bytes = static_cast<size_t>(n) * sizeof(Word);
    std::memcpy(words, from + at, bytes);
    for (int64_t k = 0; k < kRow; ++k) {
      rows[k] |= static_cast<Word>((words[k] & exponent) == exponent ? 1 : 0);
    }
    std::memcpy(to + at, words, bytes);
  };
  const int64_t whole = count / kRow * kRow;
  for (int64_t i = 0; i < whole; i += kRow) take(i, kRow);
  if (whole < count) take(whole, count - whole);
  return std::all_of(rows, rows + kRow, [](Word bad) { return bad == 0; });
}

bool CopyNumbers(NumberFormat format, const char* from, int64_t count, char* to) {
  switch (format) {
    case NumberFormat::kFp32:
      return CopyWords<uint32_t>(from, count, 0x7f800000u, to);
    case NumberFormat::kBf16:
      return CopyWords<uint16_t>(from, count, 0x7f80u, to);
    case NumberFormat::kFp16:
      return CopyWords<uint16_t>(from, count, 0x7c00u, to);
  }
  return false;
}

}  // namespace

int HostCopies::ThreadsHere() {
  const auto processors = static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(processors / 2, 1, kThreadsMax);
}

HostCopies::HostCopies(int threads) : threads_max_(threads) {}

HostCopies::~HostCopies() {
  {
    absl::MutexLock lock(&mutex_);
    closing_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

void HostCopies::Copy(const void* from, int64_t bytes, void* to) {
  ForBlocks(bytes, [&](int64_t begin, int64_t end) {
    std::memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin,
                static_cast<size_t>(end - begin));
    return true;
  });
}

bool HostCopies::CopyChecked(NumberFormat format, const void* from, int64_t count, void* to) {
  const int64_t size = BytesOf(format);
  return ForBlocks(count * size, [&](int64_t begin, int64_t end) {
    return CopyNumbers(format, static_cast<const char*>(from) + begin, (end - begin) / size,
                       static_cast<char*>(to) + begin);
  });
}

bool HostCopies::ForBlocks(int64_t bytes, const Block& block) {
  if (bytes == 0) return true;
  if (threads_max_ == 1 || bytes < kSharedBytesMin) return block(0, bytes);
  while (std::ssize(threads_) < threads_max_ - 1) threads_.emplace_back([this] { Help(); });
  bytes_ = bytes;
  next_ = 0;
  finite_ = true;
  {
    absl::MutexLock lock(&mutex_);
    block_ = &block;
  }
  TakeBlocks(block);
  // A thread that comes now finds no block; a thread that has begun one ends it.
  absl::MutexLock lock(&mutex_);
  block_ = nullptr;
  const auto alone = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return helping_ == 0; };
  mutex_.Await(absl::Condition(&alone));
  return finite_;
}

void HostCopies::TakeBlocks(const Block& block) {
  for (int64_t begin = next_.fetch_add(kBlockBytes); begin < bytes_;
       begin = next_.fetch_add(kBlockBytes)) {
    if (!block(begin, std::min(begin + kBlockBytes, bytes_))) finite_ = false;
  }
}

void HostCopies::Help() {
  const auto wanted = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return closing_ || block_ != nullptr;
  };
  absl::MutexLock lock(&mutex_);
  for (;;) {
    mutex_.Await(absl::Condition(&wanted));
    if (closing_) return;
    const Block& block = *block_;
    ++helping_;
    mutex_.Unlock();
    TakeBlocks(block);
    mutex_.Lock();
    --helping_;
    // All blocks are taken: no other thread needs to come.
    block_ = nullptr;
  }
}

}  // namespace capstan::worker
