"""Searches vectors that were written a second ago: pylance's index for the old rows, a scan for the new ones.

Run `lakefold up` and `lakefold committer` in this folder first. Usage: python vector_search.py
"""

import subprocess

import lance
import numpy as np
import pyarrow as pa

import lakefold

TABLE = "pictures.lance"
SIZE = 32
CHANCE = np.random.default_rng(0)


def pictures(first: int, count: int) -> pa.Table:
    vectors = CHANCE.standard_normal((count, SIZE), dtype=np.float32)
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), SIZE)
    return pa.table({"picture": range(first, first + count), "vector": column})


def nearest(vector: np.ndarray) -> int:
    """Returns the picture whose vector is nearest, of all that are in the table now."""
    search = {"column": "vector", "q": vector, "k": 1}
    return int(lance.dataset(TABLE).to_table(columns=["picture"], nearest=search)["picture"][0].as_py())


def main() -> None:
    lakefold.append(TABLE, pictures(0, 2_000))
    # pylance makes the index in a version of its own, beside the log.
    lance.dataset(TABLE).create_index("vector", "IVF_PQ", num_partitions=4, num_sub_vectors=8)

    new = pictures(2_000, 10)
    lakefold.append(TABLE, new)
    vector = np.asarray(new["vector"][3].as_py(), dtype=np.float32)
    print(f"found picture {nearest(vector)} right after it was written")
    assert nearest(vector) == 2_003

    # New rows are searched by a scan until the index has them.
    subprocess.run(["lakefold", "optimize-indices", TABLE], check=True)
    print(f"found picture {nearest(vector)} by the index")


if __name__ == "__main__":
    main()
