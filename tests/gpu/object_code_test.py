#!/usr/bin/env python3
"""What GPUs an object file has code for: object_code_test.py OBJECT... [--expect sm_80 ...]

Reads the fat binary that nvcc puts into an object: a header, then one entry for each generation, of
machine code or of PTX, whose own header names both. What is inside may be compressed; that is not
looked at. Exit status 0: exactly what was expected is there.
"""

import argparse
import pathlib
import struct
import sys

MAGIC = struct.pack("<I", 0xBA55ED50)
HEADER = struct.Struct("<IHHQ")  # magic, version, bytes of the header, bytes of all entries
ENTRY = struct.Struct("<HHIQ12xI")  # kind, version, bytes of the header and the code; generation
KINDS = {1: "compute", 2: "sm"}  # PTX, machine code


def code_in(data):
    """The names of all entries: sm_90, compute_100."""
    names = []
    at = data.find(MAGIC)
    while at >= 0:
        _, _, header, size = HEADER.unpack_from(data, at)
        entry, end = at + header, at + header + size
        if end > len(data):
            raise ValueError(f"a fat binary of {size} bytes at {at} leaves the file")
        while entry < end:
            kind, _, header, size, generation = ENTRY.unpack_from(data, entry)
            if kind not in KINDS or header < ENTRY.size:
                raise ValueError(f"no entry of a fat binary at {entry}: kind {kind}, header {header}")
            names.append(f"{KINDS[kind]}_{generation}")
            entry += header + size
        at = data.find(MAGIC, end)
    return names


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("objects", nargs="+", type=pathlib.Path)
    parser.add_argument("--expect", nargs="+", default=[])
    arguments = parser.parse_args()
    names = [name for path in arguments.objects for name in code_in(path.read_bytes())]
    print(" ".join(names) or "no code for a GPU")
    missing, others = set(arguments.expect) - set(names), set(names) - set(arguments.expect)
    if missing or others:
        print(f"missing: {sorted(missing)}; not expected: {sorted(others)}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
