// ExchangeFormats: as what parameters and gradients go between host and device.
//
// If servers exchange bf16 or fp16, the same halves go on to the device and come from it: half the
// bytes, no conversion on the host, and the numbers that arrive are the same. A gradient is rounded
// on the device, as its sender would round it; one too large for fp16 is infinite before it is
// looked at: the job has diverged. Parameters that the host has as fp32 go as fp32.
// Thread safety: a value.
#ifndef CAPSTAN_WORKER_TRAINING_EXCHANGE_FORMATS_H_
#define CAPSTAN_WORKER_TRAINING_EXCHANGE_FORMATS_H_

#include "common/wire/number_format.h"

namespace capstan::worker {

struct ExchangeFormats {
  NumberFormat gradients = NumberFormat::kFp32;
  NumberFormat parameters = NumberFormat::kFp32;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_EXCHANGE_FORMATS_H_
