"""The configuration of cpshardd: a file, the environment, flags - the later winning."""

import json
import re
import unittest

from programs import USAGE, ProgramTest, cpshard, cpshardd
from stubs import connect, service_pb2

TCP = "--listen=127.0.0.1:0"


class ServerConfig(ProgramTest):
    def config(self, content):
        path = self.folder / "config.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def limits(self, *arguments, environment=None):
        server = self.start(*arguments, environment=environment)
        channel, stub = connect(server.address)
        with channel:
            return stub.GetServerInfo(service_pb2.GetServerInfoRequest(), timeout=10).limits

    def refused_config(self, *texts, arguments=(), environment=None):
        for check in ([], ["--check-config"]):
            result = cpshardd(*check, *arguments, environment=environment)
            self.assertEqual((result.status, result.out), (USAGE, ""), result)
            self.assertRegex(result.err, r"\Aerror: [^\n]+\n\Z")
            for text in texts:
                self.assertIn(text, result.err)

    def test_flags_win_over_the_environment_and_the_environment_over_the_file(self):
        path = self.config({"listen": ["127.0.0.1:1"],
                            "limits": {"max_batch_bytes": "3000", "max_tensors": 20,
                                       "max_ranks": 10}})
        limits = self.limits("--config", path, "--max-ranks=12", TCP,
                             environment={"CPSHARD_MAX_TENSORS": "21", "CPSHARD_MAX_RANKS": "11"})
        self.assertEqual((limits.max_batch_bytes, limits.max_tensors, limits.max_ranks),
                         (3000, 21, 12))

    def test_the_environment_names_the_file_and_the_addresses(self):
        path = self.config({"limits": {"max_ranks": 10}})
        limits = self.limits(environment={"CPSHARD_CONFIG": str(path),
                                          "CPSHARD_LISTEN": "127.0.0.1:0"})
        self.assertEqual(limits.max_ranks, 10)
        both = {"CPSHARD_LISTEN": f"127.0.0.1:0,unix:{self.folder}/s"}
        self.assertEqual(len(self.start(environment=both, count=2).addresses), 2)

    def test_a_file_can_name_several_addresses(self):
        path = self.config({"listen": ["127.0.0.1:0", f"unix:{self.folder}/s"]})
        addresses = self.start("--config", path, count=2).addresses
        self.assertEqual(addresses[1], f"unix:{self.folder}/s")

    def test_without_configuration_the_limits_are_those_of_the_documentation(self):
        limits = self.limits(TCP)
        self.assertEqual((limits.max_unary_bytes, limits.max_message_bytes, limits.max_batch_bytes,
                          limits.max_tensors, limits.max_dims, limits.max_name_bytes,
                          limits.max_ranks),
                         (4 << 20, 8 << 20, 2 << 30, 256, 8, 128, 4096))

    def test_an_unknown_key_in_the_file_is_named(self):
        for content, name in (({"worker": 2}, "worker"), ({"limits": {"max_rank": 2}}, "max_rank"),
                              ({"limits": {"workers": 2}}, "workers")):
            self.refused_config(name, arguments=["--config", self.config(content)])

    def test_a_wrong_type_is_named(self):
        for content, name in (({"workers": "many"}, "workers"), ({"workers": 1.5}, "workers"),
                              ({"workers": [1]}, "workers"), ({"limits": 7}, "limits"),
                              ({"limits": {"max_ranks": {}}}, "max_ranks"),
                              ({"listen": [7]}, "listen")):
            with self.subTest(content=content):
                self.refused_config(name, arguments=["--config", self.config(content)])
        self.refused_config("workers", environment={"CPSHARD_WORKERS": "many"})
        self.refused_config("workers", arguments=["--workers=many"])
        self.refused_config("socket_mode", arguments=["--socket-mode=rw"])

    def test_the_source_of_a_wrong_value_is_named(self):
        path = self.config({"workers": "many"})
        self.refused_config(str(path), arguments=["--config", path])
        self.refused_config("CPSHARD_WORKERS", environment={"CPSHARD_WORKERS": "many"})
        self.refused_config("--workers", arguments=["--workers=many"])

    def test_a_value_out_of_range_is_named_with_the_range(self):
        for key, value in (("workers", 0), ("workers", 1025), ("queue", 0), ("pool_bytes", 0),
                           ("shutdown_seconds", 86401), ("socket_mode", 512)):
            with self.subTest(key=key):
                self.refused_config(key, str(value), arguments=[
                    "--config", self.config({key: value})])
        for key, value in (("max_ranks", 0), ("max_tensors", -1), ("max_batch_bytes", 0),
                           ("max_ranks", 2**62)):
            with self.subTest(key=key):
                self.refused_config(key, str(value), arguments=[
                    "--config", self.config({"limits": {key: value}})])
                self.refused_config(key, str(value), arguments=[
                    f"--{key.replace('_', '-')}={value}"])
                self.refused_config(key, str(value), environment={
                    f"CPSHARD_{key.upper()}": str(value)})
        self.refused_config("workers", arguments=["--config", self.config({"workers": -1})])
        self.refused_config("workers", arguments=["--config", self.config({"workers": 2**32})])
        self.refused_config("workers", "-1", arguments=["--workers=-1"])
        self.refused_config("socket_mode", arguments=["--socket-mode=1000"])
        self.refused_config("socket_mode", arguments=["--socket-mode=-1"])

    def test_what_is_not_a_configuration_is_refused(self):
        for content in ("", "not json", "[]", "7", '{"workers": 2', '{"workers": 2} {}'):
            with self.subTest(content=content):
                self.refused_config(arguments=["--config", self.config(content)])
        self.refused_config("absent.json", arguments=["--config", self.folder / "absent.json"])
        self.refused_config(str(self.folder), arguments=["--config", self.folder])

    def test_no_address_and_an_unknown_flag_are_refused(self):
        self.refused_config("listen", arguments=["--listen="])
        self.refused_config("--surprise", arguments=["--surprise"])
        self.refused_config("surprise", arguments=["surprise"])

    def test_a_configuration_can_be_checked_without_serving(self):
        first = self.start(TCP)
        path = self.config({"listen": [first.address], "workers": 3})
        result = self.succeeds(cpshardd("--config", path, "--check-config"))
        self.assertEqual(result.out, "configuration is valid\n")

    def test_version_and_help_are_printed(self):
        for program, run in (("cpshardd", cpshardd), ("cpshard", cpshard)):
            version = self.succeeds(run("--version"))
            first, *facts = version.out.splitlines()
            self.assertTrue(re.fullmatch(rf"{program} \d+\.\d+\.\d+", first), first)
            facts = dict(fact.split(": ", 1) for fact in facts)  # what the build was made of
            self.assertEqual(list(facts), ["commit", "build", "compiler", "target", "libraries",
                                           "executors"])
            self.assertIn("gRPC 1.", facts["libraries"])
            self.assertEqual(version.err, "")
        text = self.succeeds(cpshardd("--help")).out
        for flag in ("--config", "--check-config", "--listen", "--workers", "--max-batch-bytes"):
            self.assertIn(flag, text)
        text = self.succeeds(cpshard("--help")).out
        for command in ("shard", "gather", "plan"):
            self.assertIn(command, text)
        self.assertIn("--options", self.succeeds(cpshard("shard", "--help")).out)


if __name__ == "__main__":
    unittest.main()
