"""What happened: from files, frames and arrays to checked histories, read only through `reduce`.

`from_files` has `read_logs`, `logbook` has `Logs`; `intake/` takes a row from a file to its place in a history; `batch`
is what comes out, and `engine` hands batches to whatever computes.
"""

from newcomer.logs.logs import Logs as Logs
from newcomer.logs.read import read_logs as read_logs
