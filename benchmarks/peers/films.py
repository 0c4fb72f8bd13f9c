"""`implicit`'s exact alternating least squares on a CSV of ratings: python -m benchmarks.peers.films RATINGS.

18 factors, 15 iterations, one thread, the ratings as confidences; prints the processor seconds of the fit alone.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import polars as pl
from implicit.als import AlternatingLeastSquares
from scipy.sparse import csr_matrix

FACTORS, ITERATIONS = 18, 15


def main(path: str) -> None:
    """Read, fit, say how long the fit took."""
    table = pl.read_csv(path)
    users, films = (np.unique(table[name].to_numpy(), return_inverse=True)[1] for name in ("userId", "movieId"))
    given = csr_matrix((table["rating"].to_numpy().astype(np.float32), (users, films)))
    model = AlternatingLeastSquares(
        factors=FACTORS, iterations=ITERATIONS, num_threads=1, use_cg=False, use_gpu=False, random_state=0
    )
    began = time.process_time()
    model.fit(given, show_progress=False)
    print(json.dumps({"cpu": time.process_time() - began, "rows": len(table)}))


if __name__ == "__main__":
    main(sys.argv[1])
