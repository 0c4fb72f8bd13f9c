"""The way of a row into a history, a file a step.

finding     files, in folders, by patterns, through pipes       (scratch: temporary folders)
opening     a file as a table: its kind, separator, folders     (frames: tables and arrays that are in memory)
layout      which column plays which part (naming: by common names); a chunk becomes `Rows`
reading     files chunk by chunk; texts: text of CSV typed
columns     a column of any type becomes a checked array, or one clear error
items       an action id becomes its position in the catalogue; feature_columns: which columns are features
sources     rows are held in memory, spilled to disk, or streamed
histories   rows are grouped by user and put in time order: `Histories`
spilling    the same, bucket by bucket, for logs larger than memory
shelving    sorted histories on disk, in parts that any process can open
shuffling   files read and sorted by the workers of an engine
sketch      how rewards are distributed
survey      counts, moments and the fingerprint; advice: what could be better
"""
