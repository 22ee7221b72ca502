#include "common/wire/cord_input_stream.h"

#include <algorithm>
#include <climits>

namespace capstan {

bool CordInputStream::Next(const void** data, int* size) {
  while (chunk_ != end_ && used_ == chunk_->size()) {
    ++chunk_;
    used_ = 0;
  }
  if (chunk_ == end_) return false;
  const size_t count = std::min<size_t>(chunk_->size() - used_, INT_MAX);
  *data = chunk_->data() + used_;
  *size = static_cast<int>(count);
  used_ += count;
  count_ += *size;
  return true;
}

void CordInputStream::BackUp(int count) {
  used_ -= static_cast<size_t>(count);  // used_ counts bytes of the piece that Next returned last.
  count_ -= count;
}

bool CordInputStream::Skip(int count) {
  const void* data = nullptr;
  int size = 0;
  for (; count > 0; count -= size) {
    if (!Next(&data, &size)) return false;
    if (size > count) {
      BackUp(size - count);
      return true;
    }
  }
  return true;
}

}  // namespace capstan
