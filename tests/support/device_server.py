"""cpshardd over an emulated device (tests/gpu/stand_in.cc): CPSHARD_ON_DEVICE is the program."""

import json
import os
import pathlib

from live_server import LiveServer
from programs import ENVIRONMENT
from stream_case import Served, StreamTest

ON_DEVICE = pathlib.Path(os.environ["CPSHARD_ON_DEVICE"])


def lines_of(server, message):
    """The log lines of this message, as dicts."""
    lines = [json.loads(line) for line in server.log_text().splitlines()]
    return [line for line in lines if line["msg"] == message]


class DeviceTest(StreamTest):
    """Of the servers that this test starts: `lost` is a file whose presence loses the device,
    `hang` one that the next launch takes away, and never returns."""

    def setUp(self):
        super().setUp()
        self.lost, self.hang = self.folder / "lost", self.folder / "hang"

    def serve_device(self, *arguments, address=None, environment=None, stderr=None):
        address = address or f"unix:{self.folder}/d{len(self._served)}"
        server = LiveServer(ON_DEVICE, f"--listen={address}", *arguments,
                            environment={**ENVIRONMENT, "CPSHARD_STAND_IN_LOST": str(self.lost),
                                         "CPSHARD_STAND_IN_HANG": str(self.hang),
                                         **(environment or {})}, stderr=stderr)
        self.addCleanup(server.__exit__)
        served = Served(server.wait_until_listening())
        self.addCleanup(served.channel.close)
        self._served.append(served)
        return served
