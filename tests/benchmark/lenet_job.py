"""LeNet (28x28 images, batch 64, momentum SGD, BSP) as a job of 1 worker and 1 server."""

import sys

import synthetic

STEPS = 400
BATCH = 64  # As in the case of train_cpu.


def data(folder, steps):
    """The `data` part of a job of so many batches, over files that are written to the folder."""
    return synthetic.train_only_block(folder, steps * BATCH, side=28)


def text(live, data_block):
    return synthetic.job(
        live.folder,
        model='zoo: "lenet"',
        workers=1,
        servers=1,
        epochs=1,
        batch_size=BATCH,
        optimizer="momentum {} learning_rate: 0.01",
        data=data_block,
    )


def rate(live, data_block):
    """Samples per second of one epoch of STEPS batches."""
    status = live.wait(live.submit(text(live, data_block)))
    if status["state"] != "SUCCEEDED":
        sys.exit(f"the job failed: {status}\n{live.logs()}")
    return STEPS * BATCH / status["results"][0]["seconds"]
