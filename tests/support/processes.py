"""Processes as /proc shows them."""

import pathlib

PROC = pathlib.Path("/proc")


def command_line(pid):
    """The words of a process; none once it has ended."""
    try:
        return (PROC / str(pid) / "cmdline").read_bytes().decode().split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


def children(parent):
    """Command lines of the processes that `parent` started, by their ids."""
    found = {}
    for entry in PROC.glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended meanwhile
        words = command_line(entry.name)
        if int(fields[1]) == parent and fields[0] != "Z" and words:
            found[int(entry.name)] = words
    return found
