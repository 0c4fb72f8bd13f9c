"""From files, frames and arrays to checked histories: what `newcomer.logs` is made of."""
