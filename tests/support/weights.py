"""A model in small: bf16 weights, and the fp32 master that they were rounded from."""

import numpy


def rounded(master):
    """bf16, as the bits that NumPy has a type for."""
    bits = master.view(numpy.uint32).astype(numpy.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(numpy.uint16)


def model(seed, elements):
    """The weights, and their master."""
    master = (numpy.random.default_rng(seed).standard_normal(elements) * 0.02).astype(numpy.float32)
    return rounded(master), master
