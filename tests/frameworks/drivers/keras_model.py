"""Keras: a whole model (.keras), or its weights (.weights.h5)."""

import os
import sys

import common

os.environ["KERAS_BACKEND"] = "jax"

import keras  # noqa: E402

SUFFIX = common.VARIANT


def weights(n):
    a = common.arrays(n)
    return [a["head"], a["head"][0], a["embed"], a["norm"]]


def model():
    return keras.Sequential([keras.Input((512,)), keras.layers.Dense(1024), keras.layers.Dense(512)])


def save(folder, n):
    m = model()
    m.set_weights(weights(n))
    path = folder / f"model-{n}{SUFFIX}"
    m.save(path) if SUFFIX == ".keras" else m.save_weights(path)


def load(folder, n):
    path = folder / f"model-{n}{SUFFIX}"
    if SUFFIX == ".keras":
        m = keras.saving.load_model(path)
    else:
        m = model()
        m.load_weights(path)
    common.same(dict(enumerate(m.get_weights())), dict(enumerate(weights(n))))


def steps(folder):
    return common.numbers(folder, "model-", SUFFIX)


def remove(folder, n):
    os.unlink(folder / f"model-{n}{SUFFIX}")


if __name__ == "__main__":
    common.main(sys.modules[__name__])
