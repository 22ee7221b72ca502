// Gradient: what a push brings for a shard, as it came.
#ifndef CAPSTAN_SERVER_TABLE_STORE_GRADIENT_H_
#define CAPSTAN_SERVER_TABLE_STORE_GRADIENT_H_

#include "common/wire/wire_values.h"

namespace capstan::server {

using Gradient = WireValues;

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_TABLE_STORE_GRADIENT_H_
