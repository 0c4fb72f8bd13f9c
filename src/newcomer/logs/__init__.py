"""What happened: from files, frames and arrays to checked histories, read only through `reduce`."""

from newcomer.logs.logbook import Logs as Logs
from newcomer.logs.logbook import read_logs as read_logs
