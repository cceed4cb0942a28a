"""Write config.json and README.md of models anew, in the newest format; the weights are not touched.

    python tools/convert_models.py [FOLDER ...]          without folders: the models that come with the package

Models of format 1 get the `problem`, from the class of their equation, which must be known here.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pdejepa.core.errors import CheckpointError
from pdejepa.core.files import sha256_file
from pdejepa.forecast.header import FORMAT_VERSION, describe, system_of
from pdejepa.forecast.locate import WEIGHTS_NAME, shipped_models
from pdejepa.forecast.model_folder import load_surrogate
from pdejepa.method.save_model import write_words
from pdejepa.systems import is_known

OF_WEIGHTS = ("weights_sha256", "weights_bytes", "weights_dtype")


def convert(folder: Path) -> str:
    """Convert the model in a folder; tell from which format."""
    before = sha256_file(folder / WEIGHTS_NAME)
    surrogate, details = load_surrogate(folder, "cpu")
    if is_known(surrogate.problem.name):  # what was declared since
        surrogate.problem = system_of(surrogate.problem).problem
    plain = describe(surrogate, details, {key: details[key] for key in OF_WEIGHTS})
    write_words(folder, surrogate, plain)
    if sha256_file(folder / WEIGHTS_NAME) != before:
        raise CheckpointError(f"The weights in {folder} have changed meanwhile. Fetch that model anew.")
    return f"{folder}: format {details['format_version']} -> {FORMAT_VERSION}"


if __name__ == "__main__":
    for folder in map(Path, sys.argv[1:]) if sys.argv[1:] else shipped_models().values():
        print(convert(folder))
