"""Arrays in files: a checkpoint is one file, or a folder of arrays that the script completes with the marker."""

from cases import *  # noqa: F403
from frameworks import Framework

del test_a_step_of_any_name_appears_when_it_is_complete  # noqa: F821  (none of these has a last move of its own)

FRAMEWORKS = [
    Framework("safetensors", "safetensors_file", "safetensors", "model-{}.safetensors"),
    Framework("numpy npz", "numpy_file", "numpy", "model-{}.npz", variant="npz"),
    Framework("numpy npy", "numpy_file", "numpy", "model-{}.npy", variant="npy"),
    Framework("h5py, locking", "h5py_file", "h5py", "model-{}.h5"),
    Framework("zarr, format 2", "zarr_group", "zarr", "step_{}", "generic", "marker", variant="2"),
    Framework("zarr, format 3", "zarr_group", "zarr", "step_{}", "generic", "marker", variant="3"),
    Framework("TensorStore zarr", "tensorstore_tree", "tensorstore", "step_{}", "generic", "marker", variant="zarr"),
    Framework("TensorStore zarr3", "tensorstore_tree", "tensorstore", "step_{}", "generic", "marker", variant="zarr3"),
    Framework("Keras .keras", "keras_model", "keras", "model-{}.keras", variant=".keras"),
    Framework("Keras .weights.h5", "keras_model", "keras", "model-{}.weights.h5", variant=".weights.h5"),
]
