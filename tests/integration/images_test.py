"""Jobs on images in folders and in NumPy's files, and what `capstan init` writes for folders."""

import random
import struct
import unittest
import zipfile
import zlib

import cluster
import synthetic

CLASSES = ("ant", "bee", "cow")


def png(path, side, pixel):
    """An RGB image whose pixel at (y, x) is pixel(y, x)."""
    rows = b"".join(
        b"\0" + bytes(v for x in range(side) for v in pixel(y, x)) for y in range(side))

    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) +
                     chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def npy(shape, numbers, kind="|u1"):
    header = repr({"descr": kind, "fortran_order": False, "shape": shape}).encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + numbers


class ImagesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cluster.Cluster(servers=1, workers=2)
        cls.folder = cls.cluster.folder

    @classmethod
    def tearDownClass(cls):
        cls.cluster.close()

    def images(self, name, count, seed, classes=CLASSES):
        """Each class has its colour, noise and sizes of its own."""
        draw = random.Random(seed)
        for label, each in enumerate(CLASSES):
            if each not in classes:
                continue
            folder = self.folder / name / each
            folder.mkdir(parents=True)
            for i in range(count):
                png(folder / f"{i}.png", draw.choice((20, 24)), lambda y, x: [
                    min(255, (150 if k == label else 60) + draw.randrange(60)) for k in range(3)])
        return self.folder / name

    def test_folders_are_trained_as_init_writes_it_and_predicted(self):
        train = self.images("train", 40, 1)
        # Labels are those of the training folders, although this has no bees.
        test = self.images("test", 10, 2, classes=("ant", "cow"))
        job = self.folder / "images.textproto"
        self.cluster.run("init", "--images", str(train), "--test", str(test), str(job))
        self.assertIn("height: 20", job.read_text())
        self.cluster.run("job", "submit", str(job), "--set", "training.epochs=5")
        status = self.cluster.status(self.cluster.json("job", "list")["jobs"][-1]["jobId"])
        self.assertEqual(status["state"], "SUCCEEDED", status)
        result = status["results"][-1]
        self.assertEqual(result["testSamples"], "20")
        self.assertGreater(result["testAccuracy"], 0.9, result)
        self.assertEqual(status["effectiveSpec"]["data"]["classNames"], list(CLASSES))
        model = status["outputDirectory"]
        figures = self.cluster.json("evaluate", model)
        self.assertEqual(figures["accuracy"], result["testAccuracy"])
        cows = self.images("new", 3, 3, classes=("cow",))
        lines = self.cluster.run("predict", model, "--set", f"data.test.images={cows}").stdout
        self.assertEqual([line.split(",")[1] for line in lines.splitlines()[1:]], ["2"] * 3)

    def test_arrays_train_like_the_same_images_in_idx(self):
        idx = synthetic.data_block(self.folder, train=500, test=100)
        arrays = self.folder / "arrays.npz"
        with zipfile.ZipFile(arrays, "w", zipfile.ZIP_DEFLATED) as out:
            for name, count, seed in (("train", 500, 1), ("test", 100, 2)):
                images, labels = synthetic.write_idx(self.folder, f"np-{name}", count, seed=seed)
                pixels = zlib.decompress(images.read_bytes(), wbits=31)[16:]
                out.writestr(f"x_{name}.npy", npy((count, 8, 8), pixels))
                wide = b"".join(struct.pack("<q", b) for b in labels.read_bytes()[8:])
                out.writestr(f"y_{name}.npy", npy((count,), wide, "<i8"))
        numpy = f"""
        data {{
          format: NUMPY
          train {{ images: "{arrays}:x_train" labels: "{arrays}:y_train" }}
          test {{ images: "{arrays}:x_test" labels: "{arrays}:y_test" }}
        }}"""
        results = []
        for name, data in (("idx", idx), ("numpy", numpy)):
            status = self.cluster.wait(self.cluster.submit(synthetic.job(
                self.folder, name=name, data=data, epochs=1, workers=1,
                model='zoo: "softmax_regression" classes: 10')))
            self.assertEqual(status["state"], "SUCCEEDED", status)
            results.append({k: v for k, v in status["results"][-1].items() if k != "seconds"})
        self.assertEqual(results[0], results[1])

    def test_what_is_wrong_is_named(self):
        train = self.images("damaged", 2, 4)
        broken = train / "bee" / "1.png"
        broken.write_bytes(broken.read_bytes()[:-20])

        def refused(data, text):
            path = self.cluster.write_job(synthetic.job(self.folder, data=f"data {{ {data} }}"))
            done = self.cluster.run("job", "submit", str(path), check=False)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn(text, done.stderr)

        size = "image_folder { height: 20 width: 20 }"
        refused(f'format: IMAGE_FOLDER {size} train {{ images: "{train}" }}',
                f"{broken}: a damaged PNG")
        broken.unlink()
        refused(f'format: IMAGE_FOLDER train {{ images: "{train}" }}', "scales all images")
        refused(f'format: IMAGE_FOLDER {size} class_names: ["ant", "bee"] '
                f'train {{ images: "{train}" }}', "cow: is no class, expected one of ant, bee")
        refused('format: IMAGE_FOLDER train { labels: "x" }', "data.train.images: got nothing")
        refused('format: NUMPY train { images: "/none.npy" labels: "/none.npy" }',
                "model.classes: got nothing, expected the number of classes")


if __name__ == "__main__":
    unittest.main()
