"""Of tests of shards that run over a fake GPU, too (test_shard_device.h)."""

ON_FAKE_DEVICE = {"CAPSTAN_TEST_SHARD_DEVICE": "fake"}
