"""A peer of sessions to be killed: session_child.py ADDRESS CALL opens the call, brings it to where
it waits, or sends half a batch, prints a line and waits."""

import sys
import time

from session_calls import CALLS
from stubs import connect


def main(address, call):
    channel, stub = connect(address)
    made = CALLS[call](stub, 600)  # kept
    print("waiting", flush=True)
    time.sleep(600)
    del channel, made


if __name__ == "__main__":
    main(*sys.argv[1:])
