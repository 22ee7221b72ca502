"""The environment of tests of shards that also run over a fake GPU (test_shard_device.h)."""

ON_FAKE_DEVICE = {"CAPSTAN_TEST_SHARD_DEVICE": "fake"}
