"""The command line, one command a file.

Threads of the linear algebra library that wait for each other made a fit five times slower than one thread does;
set these variables for more. Set here because the library reads them when NumPy is first imported.
"""

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
