"""A client to be stopped: stream_child.py ADDRESS NUMBER sends so many batches whose answers have
24 MiB each, prints a line after the second and reads on."""

import sys

from stream_case import growing_batch
from streams import Stream, frames
from stubs import connect


def main(address, number):
    channel, _ = connect(address)
    stream = Stream(channel, timeout=600)
    for batch_id in range(int(number)):
        stream.send(*frames(batch_id, growing_batch()))
    for batch_id in range(int(number)):
        stream.answer(batch_id)
        if batch_id == 1:
            print("reading", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
