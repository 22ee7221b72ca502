// ExchangeFormats: the number formats in which parameters and gradients travel between host and
// device.
//
// If servers exchange bf16 or fp16, the device gets and gives the same 16-bit values: half the
// bytes, no conversion on the host, and the numbers that arrive are the same. The device rounds a
// gradient as its sender would; a value too large for fp16 becomes infinite before the check, so
// that the job has diverged. Parameters that the host has as fp32 travel as fp32.
// Thread safety: a value.
#ifndef CAPSTAN_WORKER_TRAINING_STEP_EXCHANGE_FORMATS_H_
#define CAPSTAN_WORKER_TRAINING_STEP_EXCHANGE_FORMATS_H_

#include "common/wire/number_format.h"

namespace capstan::worker {

struct ExchangeFormats {
  NumberFormat gradients = NumberFormat::kFp32;
  NumberFormat parameters = NumberFormat::kFp32;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_STEP_EXCHANGE_FORMATS_H_
