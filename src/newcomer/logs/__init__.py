"""What happened: from files, frames and arrays to checked histories, read only through `reduce`.

`read` has `read_logs`, `logs` has `Logs` and tells the way of a row. `schema` says which column plays which part,
`columns` checks each kind of column, `histories` sorts rows by user and time, `batch` is what computations see, and
`reduce` runs them over all batches, on this process or on an `engine`.
"""

from newcomer.logs.logs import Logs as Logs
from newcomer.logs.read import read_logs as read_logs
