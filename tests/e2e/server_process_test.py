"""cpshardd as a process: where it listens, what it does with sockets, and how it stops."""

import signal
import socket
import threading
import time
import unittest

import grpc

from programs import SLACK, ProgramTest, cpshardd
from stubs import connect, health_pb2, health_pb2_grpc, request_of, service_pb2
from work import GOOD, OPTIONS, check_usable, slow_request

RESOURCES = 75  # its exit status when an address is not to be had
STOP_LIMIT = 2.0 * SLACK  # seconds


class ServerProcess(ProgramTest):
    def setUp(self):
        super().setUp()
        self.socket = self.folder / "server.sock"
        self.unix = f"unix:{self.socket}"

    def cannot_start(self, listen, *texts):
        result = cpshardd(f"--listen={listen}")
        self.assertEqual((result.status, result.out), (RESOURCES, ""), result.err)
        for text in texts:
            self.assertIn(text, result.err)

    def test_port_0_becomes_a_free_port_that_is_printed(self):
        servers = [self.start("--listen=127.0.0.1:0") for _ in range(2)]
        ports = [int(server.address.removeprefix("127.0.0.1:")) for server in servers]
        self.assertNotEqual(*ports)
        for server in servers:
            self.assertEqual(server.address, f"127.0.0.1:{ports.pop(0)}")
            check_usable(self, server.address)

    def test_it_serves_a_unix_socket_with_the_mode_asked_for(self):
        for form, mode in ((self.unix, []), (f"unix://{self.socket}", ["--socket-mode=0600"])):
            server = self.start(f"--listen={form}", *mode)
            self.assertEqual(server.address, self.unix)
            check_usable(self, server.address)
            self.assertEqual(self.socket.stat().st_mode & 0o777, 0o600 if mode else 0o660)
            self.assertEqual(server.stop(), 0)

    def test_it_serves_tcp_and_a_unix_socket_at_once(self):
        server = self.start("--listen=127.0.0.1:0", "--listen", self.unix, count=2)
        self.assertEqual(server.addresses[1], self.unix)
        for address in server.addresses:
            check_usable(self, address)

    def test_a_second_server_on_a_socket_does_not_start_and_the_first_goes_on(self):
        first = self.start(f"--listen={self.unix}")
        self.cannot_start(self.unix, str(self.socket))
        self.cannot_start(f"127.0.0.1:0,{self.unix}", str(self.socket))
        check_usable(self, first.address)
        self.assertEqual(first.stop(), 0)

    def test_a_socket_left_by_a_killed_server_is_taken_over(self):
        killed = self.start(f"--listen={self.unix}")
        killed.signal(signal.SIGKILL)
        self.assertEqual(killed.process.wait(), -signal.SIGKILL)
        self.assertTrue(self.socket.is_socket())
        check_usable(self, self.start(f"--listen={self.unix}").address)

    def test_a_regular_file_at_the_socket_path_is_left_alone(self):
        self.socket.write_text("precious")
        self.cannot_start(self.unix, str(self.socket), "not a socket")
        self.assertEqual(self.socket.read_text(), "precious")

    def test_a_path_that_no_socket_can_have_is_a_configuration_error(self):
        result = cpshardd(f"--listen=unix:{self.folder}/{'x' * 108}")
        self.assertEqual(result.status, 64, result.err)
        self.assertIn("107", result.err)  # bytes of sun_path without the final zero

    def test_an_address_that_names_no_port_is_refused(self):
        for address in ("127.0.0.1", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:-1", "nonsense"):
            with self.subTest(address):
                with self.assertRaises(RuntimeError, msg="it listens") as ended:
                    self.start(f"--listen={address}")
                self.assertRegex(str(ended.exception), rf"(?s)ended with (64|75): .*{address}")

    def test_a_port_in_use_is_refused(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            self.cannot_start("127.0.0.1:%d" % taken.getsockname()[1],
                              str(taken.getsockname()[1]))
        first = self.start("--listen=127.0.0.1:0")
        self.cannot_start(first.address, first.address)
        # None of its addresses is served when one cannot be.
        self.cannot_start(f"{self.unix},{first.address}", first.address)
        self.assertFalse(self.socket.exists())
        check_usable(self, first.address)

    def test_sigterm_ends_it_at_once_though_clients_are_connected(self):
        for stop in (signal.SIGTERM, signal.SIGINT):
            server = self.start(f"--listen=127.0.0.1:0,{self.unix}", count=2)
            channels = [connect(address)[0] for address in server.addresses]
            for channel in channels:
                grpc.channel_ready_future(channel).result(10)
            request = health_pb2.HealthCheckRequest()
            watch = health_pb2_grpc.HealthStub(channels[0]).Watch(request)
            self.assertEqual(next(watch).status, health_pb2.HealthCheckResponse.SERVING)
            begin = time.monotonic()
            server.signal(stop)
            self.assertEqual(server.process.wait(10), 0, server.log_text())
            self.assertLess(time.monotonic() - begin, STOP_LIMIT)
            self.assertFalse(self.socket.exists())
            for channel in channels:
                channel.close()

    def test_calls_in_flight_at_sigterm_are_answered(self):
        server = self.start(f"--listen={self.unix}", "--workers=1")
        channel, stub = connect(server.address)
        stub.ShardBatch(request_of(GOOD, OPTIONS, 4), timeout=10)
        raw = channel.unary_unary("/cpshard.v1.ShardService/ShardBatch")
        done = []
        calls = [raw.future(slow_request(), timeout=60) for _ in range(40)]
        for call in calls:
            call.add_done_callback(lambda _: done.append(time.monotonic()))
        stub.GetServerInfo(service_pb2.GetServerInfoRequest(), timeout=10)  # sent after them
        time.sleep(0.1)
        begin = time.monotonic()
        server.signal(signal.SIGTERM)
        for call in calls:
            self.assertEqual(call.code(), grpc.StatusCode.OK, call.details())
        self.assertEqual(server.process.wait(10), 0, server.log_text())
        self.assertGreaterEqual(sum(when > begin for when in done), 3, "the calls were too quick")
        channel.close()

    def test_a_call_that_comes_after_sigterm_is_told_to_go_elsewhere(self):
        server = self.start(f"--listen={self.unix}", "--workers=1")
        channel, stub = connect(server.address)
        health = health_pb2_grpc.HealthStub(channel)
        grpc.channel_ready_future(channel).result(10)
        raw = channel.unary_unary("/cpshard.v1.ShardService/ShardBatch")
        calls = [raw.future(slow_request(), timeout=60) for _ in range(40)]
        stub.GetServerInfo(service_pb2.GetServerInfoRequest(), timeout=10)
        server.signal(signal.SIGTERM)
        while "stopping" not in server.log_text():
            time.sleep(0.01)
        time.sleep(0.05)
        with self.assertRaises(grpc.RpcError) as refused:
            stub.ShardBatch(request_of(GOOD, OPTIONS, 4), timeout=10)
        self.assertEqual(refused.exception.code(), grpc.StatusCode.UNAVAILABLE)
        self.assertIn("shutting down", refused.exception.details())
        status = health.Check(health_pb2.HealthCheckRequest(), timeout=10).status
        self.assertEqual(status, health_pb2.HealthCheckResponse.NOT_SERVING)
        alive = health_pb2.HealthCheckRequest(service="liveness")  # draining is not being ill
        self.assertEqual(health.Check(alive, timeout=10).status,
                         health_pb2.HealthCheckResponse.SERVING)
        for call in calls:
            self.assertIn(call.code(), (grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE))
        self.assertEqual(server.process.wait(10), 0, server.log_text())
        channel.close()

    def test_a_second_signal_or_the_end_of_the_grace_cuts_calls_short(self):
        for grace, signals in (("30", 2), ("0", 1)):
            server = self.start(f"--listen={self.unix}", "--workers=1",
                                f"--shutdown-seconds={grace}")
            channel, _ = connect(server.address)
            grpc.channel_ready_future(channel).result(10)
            raw = channel.unary_unary("/cpshard.v1.ShardService/ShardBatch")
            calls = [raw.future(slow_request(), timeout=60) for _ in range(50)]
            time.sleep(0.2)
            begin = time.monotonic()
            for _ in range(signals):
                server.signal(signal.SIGTERM)
                time.sleep(0.1)
            for call in calls:
                self.assertIn(call.code(), (grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE,
                                            grpc.StatusCode.CANCELLED), call.details())
            self.assertEqual(server.process.wait(10), 0, server.log_text())
            self.assertLess(time.monotonic() - begin, 2 * STOP_LIMIT)
            channel.close()

    def hammer(self, address, stop, failures):
        """Calls in a loop until `stop`; `failures` receives the codes of those that fail."""
        channel, stub = connect(address)
        with channel:
            while not stop.is_set():
                try:
                    stub.ShardBatch(request_of(GOOD, OPTIONS, 4), timeout=20)
                except grpc.RpcError as error:
                    failures.append(error.code())
                    time.sleep(0.02)

    def test_clients_that_never_rest_cannot_keep_it_from_stopping(self):
        for listen in (self.unix, "127.0.0.1:0"):
            server = self.start(f"--listen={listen}")
            stop, failures = threading.Event(), []
            clients = [threading.Thread(target=self.hammer, args=(server.address, stop, failures))
                       for _ in range(8)]
            for client in clients:
                client.start()
            try:
                time.sleep(0.3)
                self.assertEqual(failures, [])
                begin = time.monotonic()
                server.signal(signal.SIGTERM)
                self.assertEqual(server.process.wait(20), 0, server.log_text())
                self.assertLess(time.monotonic() - begin, 3 * SLACK)
                time.sleep(1)
            finally:
                stop.set()
                for client in clients:
                    client.join()
            self.assertGreater(len(failures), 80)
            unavailable = failures.count(grpc.StatusCode.UNAVAILABLE)
            cancelled = failures.count(grpc.StatusCode.CANCELLED)
            self.assertEqual(unavailable + cancelled, len(failures), set(failures))
            self.assertLessEqual(20 * cancelled, len(failures))


if __name__ == "__main__":
    unittest.main()
