"""capstan's tables without a cluster: which arrays are taken, what is declared, what is loaded."""

import array
import asyncio
import json
import os
import pathlib
import re
import struct
import tempfile
import threading
import unittest
from unittest import mock

import capstan
from capstan import _arrays, _job, _session, _tables, optimizers
from capstan._future import Future

try:
    import numpy
except ImportError:
    numpy = None
try:
    import torch
except ImportError:
    torch = None


def forget():
    """As in a new process."""
    _tables._made = _session._maker = None


class TablesCase(unittest.TestCase):
    def setUp(self):
        forget()
        self.addCleanup(forget)

    def refused(self, words, call, *arguments, **named):
        with self.assertRaisesRegex((capstan.Error, ValueError), words):
            call(*arguments, **named)


class ArraysTest(TablesCase):
    """memory_of: the buffer protocol and DLPack."""

    def read(self, given):
        memory = _arrays.memory_of(given, "it")
        memory.expect("it", "float32")
        content = _arrays.copy_of_floats(memory)
        return memory.shape, list(struct.unpack(f"={memory.count}f", content))

    def test_an_array_of_the_standard_library_is_taken_where_it_is(self):
        given = array.array("f", [1, 2, 3])
        self.assertEqual(self.read(given), ((3,), [1, 2, 3]))
        self.assertEqual(_arrays.memory_of(given, "it").address, given.buffer_info()[0])
        self.assertEqual(self.read(array.array("f")), ((0,), []))
        self.assertNotEqual(_arrays.memory_of(memoryview(b""), "it").address, 0)
        read_only = memoryview(bytes(given)).cast("f", (3, 1))
        self.assertEqual(self.read(read_only), ((3, 1), [1, 2, 3]))

    def test_what_is_no_array_is_refused(self):
        self.refused("it is float, expected an array: something with the buffer protocol or "
                     "__dlpack__", _arrays.memory_of, 1.5, "it")
        self.refused("it is list, expected an array", _arrays.memory_of, [1.0], "it")

    def test_other_types_are_told_by_their_names(self):
        for letter, name in (("d", "float64"), ("i", "int32"), ("Q", "uint64"), ("b", "int8")):
            self.assertEqual(_arrays.memory_of(array.array(letter), "it").dtype, name)
        self.refused(r"it is float64 of shape \(1,\), expected float32$",
                     self.read, array.array("d", [1]))

    @unittest.skipIf(numpy is None, "NumPy is missing: deploy/install --tests")
    def test_arrays_of_numpy(self):
        matrix = numpy.arange(6, dtype="f4").reshape(2, 3)
        self.assertEqual(self.read(matrix), ((2, 3), [0, 1, 2, 3, 4, 5]))
        self.assertEqual(_arrays.memory_of(matrix, "it").address, matrix.ctypes.data)
        self.assertEqual(self.read(numpy.float32(7)), ((), [7]))
        self.assertEqual(self.read(numpy.zeros((0, 4), "f4")), ((0, 4), []))
        # Arrays that are not row by row without gaps are copied.
        self.assertEqual(self.read(matrix.T), ((3, 2), [0, 3, 1, 4, 2, 5]))
        self.assertEqual(self.read(matrix[:, ::2]), ((2, 2), [0, 2, 3, 5]))
        self.assertEqual(self.read(matrix[::-1]), ((2, 3), [3, 4, 5, 0, 1, 2]))
        self.refused("it is '>f' of shape", self.read, matrix.astype(">f4"))
        self.refused("it is float16 of shape", self.read, matrix.astype("f2"))
        self.refused("it is bool of shape", self.read, matrix > 1)

    @unittest.skipIf(torch is None, "PyTorch is missing: deploy/install --tests")
    def test_dlpack(self):
        tensor = torch.arange(6.0).reshape(2, 3)
        self.assertEqual(self.read(tensor), ((2, 3), [0, 1, 2, 3, 4, 5]))
        self.assertEqual(_arrays.memory_of(tensor, "it").address, tensor.data_ptr())
        self.assertEqual(self.read(tensor[1]), ((3,), [3, 4, 5]))
        memory = _arrays.memory_of(torch.full((1000,), 2.0), "it")  # Only it keeps the tensor.
        self.assertEqual(struct.unpack("=1000f", _arrays.copy_of_floats(memory)), (2,) * 1000)
        self.assertNotEqual(_arrays.memory_of(torch.empty(0), "it").address, 0)
        self.refused(r"it has the strides \(1, 3\), expected values row by row", self.read,
                     tensor.t())
        self.refused("it is bfloat16 of shape", self.read, tensor.bfloat16())
        self.refused("it is int64 of shape", self.read, tensor.long())
        self.refused("it: Can't export tensors that require gradient", self.read,
                     torch.ones(2, requires_grad=True))

    def test_arrays_on_a_device_are_refused(self):
        on_device = mock.Mock(__dlpack__=None, __dlpack_device__=lambda: (2, 0))
        self.refused("it is on a device of DLPack's kind 2, expected the host's memory",
                     _arrays.memory_of, on_device, "it")


class DeclareTest(TablesCase):
    def declared(self, samples=100, batch_size=10, epochs=2):
        """The job of a script that has made its tables, and its initial values."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            with mock.patch.dict(os.environ, {"CAPSTAN_DECLARE": name}):
                self.make_tables()
                with self.assertRaises(SystemExit):
                    next(capstan.batches(samples, batch_size, epochs=epochs))
            (folder / _job.WEIGHTS_FILE).rename(folder / "model.safetensors")
            return json.loads((folder / _job.JOB_FILE).read_text()), capstan.load(folder)

    def make_tables(self):
        capstan.init(sync="ssp:3", seed=9)
        first = array.array("f", [1, 2])
        rule = optimizers.Adam(0.5) | optimizers.Pieces({9: 0.5, 0: 1})
        capstan.table("w", first, optimizer=rule)
        first[0] = 7  # Nobody cares any more.
        capstan.table("b", memoryview(array.array("f", [3, 4])).cast("B").cast("f", (2, 1)))
        capstan.rows("ads", 4, keys=None, optimizer=optimizers.Adagrad(0.05), admit_after=3)

    def test_a_script_declares_its_job(self):
        job, initial = self.declared()
        self.assertEqual(job["consistency"], {"ssp": {"staleness_bound": 3}})
        self.assertEqual((job["training"]["epochs"], job["training"]["batch_size"],
                          job["training"]["seed"]), (2, 10, 9))
        program = job["program"]
        self.assertEqual(program["samples"], 100)
        self.assertEqual(program["parameters"], [
            {"name": "w", "shape": [2]}, {"name": "b", "shape": [2, 1], "optimizer": 1}])
        self.assertEqual((program["rows"][0]["name"], program["rows"][0]["lifetime"]["admit_after"],
                          program["rows"][0]["optimizer"]), ("ads", 3, 2))
        self.assertEqual(job["optimizer"], optimizers.Adam(0.5) | {"schedule": {
            "pieces": {"begins": [0, 9], "factors": [1, 0.5]}, "warmup_steps": 0}})
        self.assertEqual(program["optimizers"], [optimizers.SGD(0.01), optimizers.Adagrad(0.05)])
        self.assertEqual([list(initial["w"]), initial["b"].tolist()], [[1, 2], [[3], [4]]])

    def test_a_time_to_live_is_text_or_seconds(self):
        for ttl, seconds in ((None, 0), ("60s", 60), ("90m", 5400), ("1.5h", 5400),
                             ("30d", 2_592_000), (60, 60), (99.6, 100), ("3650d", 315_360_000)):
            described = _job.described_rows("ads", 4, ttl=ttl)
            self.assertEqual(described["lifetime"]["ttl_seconds"], seconds, ttl)
        capstan.init()
        for ttl in ("59s", "3651d", "30", "d", "30 d", "-1d", "1e3s", "30w", "", 0, -60, 59.9,
                    float("nan"), float("inf"), True, b"30d", [60]):
            self.refused(re.escape(f"ttl is {ttl!r}, expected None, a number of seconds, or"),
                         capstan.rows, "ads", 4, ttl=ttl)

    def test_rules_that_are_too_long_for_a_variable_are_compared_by_their_checksum(self):
        def variables(rate):
            return _job.variables({f"w{i}": optimizers.Adam(rate) for i in range(1000)})

        with mock.patch.dict(os.environ, {"CAPSTAN_WORKERS": "2"}):
            found = variables(0.5)
            self.assertEqual(found["CAPSTAN_WORKERS"], "2")
            self.assertLess(len(found["CAPSTAN_RULES"]), 1000)
            self.assertNotEqual(found, variables(0.25))

    def test_what_is_wrong_is_refused(self):
        zeros = array.array("f", [0, 0])
        self.refused("there is no job yet: capstan.init", capstan.table, "w", zeros)
        self.refused("there is no job yet", next, capstan.batches(1, 1))
        self.refused("sync is 'bps', expected", capstan.init, sync="bps")
        job = capstan.init()
        self.refused("a second capstan.init.., expected one", capstan.init)
        self.refused("there is no capstan.table yet", next, capstan.batches(1, 1))
        w = capstan.table("w", zeros)
        self.refused(r"two tables 'w', of the shapes \(2,\) and \(1,\): expected a name for each",
                     capstan.table, "w", array.array("f", [0]))
        self.refused("two tables 'w'", capstan.rows, "w", 3, keys=None)
        self.refused("the initial value of 'b' is float64 of shape .1,., expected float32",
                     capstan.table, "b", array.array("d", [0]))
        self.refused(r"the initial value of 'b' has the shape \(0,\), expected at least one value",
                     capstan.table, "b", array.array("f"))
        self.refused("there is no batch", w.pull)
        self.refused("there is no batch", w.push, zeros)
        self.refused("the job is known from the first batch", lambda: job.rank)
        for arguments, words in (((0, 1), "samples is 0, expected a whole number of at least 1"),
                                 ((5, 1.5), "batch_size is 1.5, expected a whole number")):
            self.refused(words, next, capstan.batches(*arguments))
        self.refused("epochs is 0", next, capstan.batches(5, 1, epochs=0))

    @unittest.skipIf(torch is None, "PyTorch is missing: deploy/install --tests")
    def test_a_process_has_one_kind_of_job(self):
        import capstan.torch  # pylint: disable=redefined-outer-name

        capstan.init()
        net = torch.nn.Linear(1, 1)
        self.refused("has capstan.init.. and capstan.torch.Optimizer, expected one of the two",
                     capstan.torch.Optimizer, torch.optim.SGD(net.parameters(), lr=1), net)


class LoadTest(TablesCase):
    def write(self, path, tensors):
        """tensors: (name, dtype, shape, bytes)."""
        header, parts = {"__metadata__": {"job": "x"}}, b""
        for name, dtype, shape, content in tensors:
            header[name] = {"dtype": dtype, "shape": shape,
                            "data_offsets": [len(parts), len(parts) + len(content)]}
            parts += content
        text = json.dumps(header).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + parts)

    def test_a_model_is_loaded(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            self.refused("there is no file .*model.safetensors: expected the folder of a job's "
                         "model", capstan.load, folder)
            self.write(folder / "model.safetensors", [
                ("w", "F32", [2, 1], struct.pack("<2f", 1, 2)),
                ("b", "F32", [], struct.pack("<f", 3))])
            self.write(folder / "rows-ads.safetensors", [
                ("keys", "U64", [2], struct.pack("<2q", 7, -1)),
                ("rows", "F32", [2, 2], struct.pack("<4f", 1, 2, 3, 4))])
            model = capstan.load(folder)
            self.assertEqual(sorted(model), ["ads", "b", "w"])
            self.assertEqual((model["w"].tolist(), model["b"].tolist()), ([[1], [2]], 3))
            keys, values = model["ads"]
            self.assertEqual((keys.tolist(), values.tolist()), ([7, -1], [[1, 2], [3, 4]]))
            model["w"][0, 0] = 5  # They are the caller's own.
            self.write(folder / "model.safetensors", [("w", "F32", [3], bytes(8))])
            self.refused(r"a tensor of shape \(3,\) has 8 bytes, expected 12", capstan.load, folder)

    def test_a_model_is_loaded_without_numpy(self):
        with mock.patch.object(_arrays, "_numpy", lambda: None):
            self.test_a_model_is_loaded()


class FutureTest(unittest.TestCase):
    async def later(self):
        future = Future()
        setter = threading.Thread(target=future.set_result, args=(2,))
        setter.start()
        found = await future
        setter.join()
        return found

    def test_it_can_be_awaited(self):
        async def both():
            done = Future()
            done.set_result(1)
            return await done, await self.later()

        self.assertEqual(asyncio.run(both()), (1, 2))


if __name__ == "__main__":
    unittest.main()
