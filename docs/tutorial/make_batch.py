"""A text file becomes a batch of packed rows: make_batch.py TEXT OUT [--columns S] [--multiple M]
[--no-lengths]

Documents are what blank lines separate; a token is a byte. Documents lie side by side in rows
[B, S], each padded to a multiple of M, the last of a row to its end. Without --columns there is one
row, as long as its documents. Written are

  input_ids     [B, S]  the bytes; 0 on padding
  labels        [B, S]  the next token of the same document; -100 where there is none
  position_ids  [B, S]  0, 1, 2, ... in every document
  seq_lens, seq_lens_padded  [B, most documents of a row]  lengths; -1000 where a row has fewer
"""

import argparse

import tensors

NO_DOCUMENT, IGNORED, PAD = -1000, -100, 0


def padded(document, multiple):
    return -(-len(document) // multiple) * multiple


def pack(documents, columns, multiple):
    """Rows of (document, columns that it takes), in order; one that does not fit begins a new row,
    one that is longer than a row is cut off."""
    rows, free = [[]], columns
    for document in documents:
        document = document[:columns]
        width = min(padded(document, multiple), columns)
        if width > free:
            rows.append([])
            free = columns
        rows[-1].append([document, width])
        free -= width
    for row in rows:
        row[-1][1] += columns - sum(width for _, width in row)
    return rows


def batch_of(rows, columns, with_lengths):
    ids, labels, positions, real, wide = [], [], [], [], []
    most = max(len(row) for row in rows)
    for row in rows:
        for document, width in row:
            padding = width - len(document)
            ids += list(document) + [PAD] * padding
            labels += list(document[1:]) + [IGNORED] * (padding + 1)
            positions += range(width)
        unused = [NO_DOCUMENT] * (most - len(row))
        real += [len(document) for document, _ in row] + unused
        wide += [width for _, width in row] + unused
    shape = [len(rows), columns]
    batch = {"input_ids": (shape, ids), "labels": (shape, labels),
             "position_ids": (shape, positions)}
    if with_lengths:
        batch |= {"seq_lens": ([len(rows), most], real),
                  "seq_lens_padded": ([len(rows), most], wide)}
    return batch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("text")
    parser.add_argument("out")
    parser.add_argument("--columns", type=int)
    parser.add_argument("--multiple", type=int, default=8)
    parser.add_argument("--no-lengths", action="store_true")
    arguments = parser.parse_args()
    with open(arguments.text, "rb") as file:
        documents = [part.strip() for part in file.read().split(b"\n\n") if part.strip()]
    if not documents:
        parser.error(f"{arguments.text} holds no text")
    columns = arguments.columns or sum(padded(part, arguments.multiple) for part in documents)
    rows = pack(documents, columns, arguments.multiple)
    batch = batch_of(rows, columns, not arguments.no_lengths)
    metadata = None if arguments.no_lengths else {"qkv_format": "thd"}
    tensors.write(arguments.out, batch, metadata)
    print(f"{arguments.out}: {len(documents)} documents in rows [{len(rows)}, {columns}]")


if __name__ == "__main__":
    main()
