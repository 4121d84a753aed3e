"""Round robin as people write it themselves: my_sharder.py BATCH DIR CP_SIZE [--late-shift]

Rows are padded to a multiple of 2 * cp_size; rank r keeps chunks r and 2 * cp_size - 1 - r of
2 * cp_size. With --late-shift labels are made after the cut, by shifting each rank's ids: a
mistake, since the token behind a chunk is on another rank, and a document's last token has no next.
"""

import os
import sys

import tensors

PADS = {"labels": -100}  # 0 in all other streams


def cut(name, values, shape, rank, cp_size):
    """The rank's part of [B, S] values, row by row."""
    rows, columns = shape
    piece = -(-columns // (2 * cp_size))
    part = []
    for row in range(rows):
        line = values[row * columns:(row + 1) * columns]
        line += [PADS.get(name, 0)] * (2 * cp_size * piece - columns)
        for chunk in (rank, 2 * cp_size - 1 - rank):
            part += line[chunk * piece:(chunk + 1) * piece]
    return [rows, 2 * piece], part


def main():
    batch, folder, cp_size = sys.argv[1], sys.argv[2], int(sys.argv[3])
    os.makedirs(folder, exist_ok=True)
    streams = tensors.read(batch)
    for rank in range(cp_size):
        shard = {name: cut(name, values, shape, rank, cp_size)
                 for name, (shape, values) in streams.items()}
        if "--late-shift" in sys.argv:
            shape, ids = shard["input_ids"]
            shard["labels"] = shape, ids[1:] + [-100]
        tensors.write(os.path.join(folder, f"rank{rank}.safetensors"), shard)


if __name__ == "__main__":
    main()
