// TestShardDevice: the device on which tests of shards run: the host, and in targets that set
// CAPSTAN_TEST_SHARD_DEVICE a fake GPU (kernels/testing/fake_device.h) as well.
//
// Thread safety: thread-safe.
#ifndef CAPSTAN_SERVER_DEVICE_TESTING_TEST_SHARD_DEVICE_H_
#define CAPSTAN_SERVER_DEVICE_TESTING_TEST_SHARD_DEVICE_H_

#include "server/device/shard_device.h"

namespace capstan::server {

// Null: the host. Never freed.
ShardDevice* TestShardDevice();

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_DEVICE_TESTING_TEST_SHARD_DEVICE_H_
