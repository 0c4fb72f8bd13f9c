"""The way of a row into a history, a file a step.

reading     files, chunk by chunk, text of CSV typed            (frames: tables and arrays that are in memory)
layout      which column plays which part; a chunk becomes `Rows`
columns     a column of any type becomes a checked array, or one clear error
items       an action id becomes its position in the catalogue
sources     rows are held in memory, spilled to disk, or streamed
histories   rows are grouped by user and put in time order: `Histories`
spilling    the same, bucket by bucket, for logs larger than memory
survey      counts, moments and the fingerprint; advice: what could be better
"""
