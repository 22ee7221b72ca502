// ExchangeFormats: as what parameters and gradients go between host and device.
//
// Half the bytes for who has them from, and gives them to, servers as bf16 or fp16: the numbers
// that arrive are the same. A gradient is rounded on the device, as its sender would round it, and
// one too large for fp16 is infinite before it is looked at: the job has diverged. Parameters are
// never rounded: those of which a number would change go as fp32.
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
