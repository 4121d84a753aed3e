"""Plants one forbidden line per rule in a small tree and expects exactly that finding."""

import pathlib
import tempfile
import unittest

import include_rules

# (rule, file, line that must be found)
FORBIDDEN = [
    ("layers", "core/plan/a.h", '#include "core/batch/batch.h"'),
    ("layers", "core/plan/a.h", "#include <core/exec/task.h>"),
    ("layers", "core/batch/a.cc", '#include "core/exec/task.h"'),
    ("layers", "core/exec/a.cc", '#include "proto/codec.h"'),
    ("layers", "core/exec/a.cc", '#include "core/oracle/restatement.h"'),
    ("layers", "core/oracle/a.cc", '#include "core/plan/plan.h"'),
    ("layers", "core/torch/a.cc", '#include "proto/codec.h"'),
    ("layers", "core/torch/a.cc", '#include "client/client.h"'),
    ("layers", "core/novel/a.cc", '#include "core/plan/plan.h"'),
    ("layers", "proto/a.cc", '#include "server/session.h"'),
    ("layers", "proto/a.cc", '#include "client/client.h"'),
    ("layers", "server/a.cc", '#include "core/oracle/restatement.h"'),
    ("libraries", "core/plan/a.cc", '#include "absl/time/time.h"'),
    ("libraries", "core/plan/a.cc", '#include "absl/synchronization/mutex.h"'),
    ("libraries", "core/plan/a.cc", "#include <unistd.h>"),
    ("libraries", "core/plan/a.cc", "#include <xxhash.h>"),
    ("libraries", "core/plan/a.cc", "#include <nlohmann/json.hpp>"),
    ("libraries", "core/batch/a.cc", '#include "absl/time/time.h"'),
    ("libraries", "core/batch/a.cc", "#include <spdlog/spdlog.h>"),
    ("libraries", "core/exec/a.cc", "#include <CLI/CLI.hpp>"),
    ("libraries", "core/oracle/a.cc", '#include "absl/status/status.h"'),
    ("server-and-client-apart", "server/a.cc", '#include "client/client.h"'),
    ("server-and-client-apart", "client/a.cc", '#include "server/session.h"'),
    ("protobuf-room", "core/exec/a.cc", "#include <google/protobuf/message.h>"),
    ("protobuf-room", "server/a.cc", '#include "cpshard/v1/types.pb.h"'),
    ("protobuf-room", "server/service.h", '#include "cpshard/v1/service.pb.h"'),
    ("protobuf-room", "client/main.cc", '#include "cpshard/v1/service.grpc.pb.h"'),
    ("protobuf-room", "client/sub/client.cc", '#include "cpshard/v1/service.pb.h"'),
    ("protobuf-room", "core/torch/a.cc", '#include "google/protobuf/arena.h"'),
    ("grpc-room", "proto/codec.cc", "#include <grpcpp/grpcpp.h>"),
    ("grpc-room", "core/batch/a.cc", "#include <grpc/slice.h>"),
    ("grpc-room", "core/torch/a.cc", "  #  include <grpcpp/grpcpp.h>"),
    ("torch-room", "server/a.cc", "#include <torch/library.h>"),
    ("torch-room", "client/a.cc", '#include "core/torch/verbs.h"'),
    ("torch-room", "proto/a.cc", "#include <c10/core/Device.h>"),
    ("torch-room", "core/exec/a.cc", "#include <ATen/core/Tensor.h>"),
    ("torch-room", "core/torch/kernel.cu", "#include <ATen/core/Tensor.h>"),
    ("torch-room", "core/exec/kernel.cu", '#include "core/torch/verbs.h"'),
    ("cuda-room", "core/exec/a.cc", "#include <cuda_runtime.h>"),
    ("cuda-room", "server/a.cc", "#include <cuda_runtime_api.h>"),
    ("tests-stay-outside", "core/plan/a.cc", '#include "tests/support/batches.h"'),
    ("tests-stay-outside", "client/a.cc", "#include <gtest/gtest.h>"),
    ("from-the-root", "core/plan/a.cc", '#include "../batch/batch.h"'),
    ("from-the-root", "core/plan/a.cc", '#include "neighbour.h"'),
    ("feature-conditional", "core/exec/a.cc", "#ifdef CPSHARD_CUDA"),
    ("feature-conditional", "core/exec/a.h", "#if defined(__CUDACC__)"),
    ("feature-conditional", "client/a.cc", "#if 1 && \\\n    defined(USE_MEMFD)"),
    ("feature-conditional", "proto/a.cc", "#ifndef HAVE_XXHASH"),
    ("feature-conditional", "server/a.cc", "#elif WITH_NCCL"),
    ("feature-conditional", "server/a.cc", "#if __has_include(<numa.h>)"),
    ("feature-conditional", "tests/plan/a.cc", "#ifdef CPSHARD_WITH_TORCH"),
]

CLEAN = {
    "core/plan/neighbour.h": "#pragma once\n#include <vector>\n#include \"absl/types/span.h\"\n",
    "core/plan/plan.cc": '#include "core/plan/neighbour.h"\n#include "absl/status/status.h"\n',
    "core/batch/a.cc": '#include <sys/mman.h>\n#include <xxhash.h>\n#include "core/plan/plan.h"\n'
                       '#include "absl/synchronization/mutex.h"\n',
    "core/exec/a.cc": '#include <emmintrin.h>\n#include "core/batch/batch.h"\n'
                      "#if defined(__x86_64__)\n#endif\n",
    "core/exec/cuda.cu": '#include <cuda_runtime.h>\n#include "core/exec/executor.h"\n',
    "core/oracle/a.cc": '#include "core/oracle/restatement.h"\n#include <map>\n',
    "core/torch/ops.cc": '#include <torch/library.h>\n#include "core/torch/verbs.h"\n'
                         '#include "core/exec/executor.h"\n',
    "core/torch/ops.h": "#ifndef CPSHARD_CORE_TORCH_OPS_H_\n"
                        "#define CPSHARD_CORE_TORCH_OPS_H_\n#endif\n",
    "proto/codec.cc": '#include "cpshard/v1/types.pb.h"\n#include <google/protobuf/message.h>\n'
                      '#include "core/exec/shard.h"\n',
    "proto/status.h": "#include <grpcpp/support/status.h>\n",
    "server/service.cc": '#include "cpshard/v1/service.grpc.pb.h"\n#include <grpcpp/grpcpp.h>\n'
                         '#include <spdlog/spdlog.h>\n#include "proto/codec.h"\n',
    "client/client.cc": '#include "cpshard/v1/service.grpc.pb.h"\n#include "client/client.h"\n',
    "client/demo.cc": '#include <CLI/CLI.hpp>\n#include "core/oracle/restatement.h"\n',
    "tests/e2e/a.cc": '#include <gtest/gtest.h>\n#include "server/server.h"\n'
                      '#include "client/client.h"\n#include "cpshard/v1/types.pb.h"\n',
    "build/generated/types.cc": '#include "tests/not/read.h"\n#include <torch/library.h>\n',
}


class IncludeRules(unittest.TestCase):
    def check(self, tree):
        with tempfile.TemporaryDirectory() as folder:
            for path, text in tree.items():
                file = pathlib.Path(folder, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            return include_rules.check(folder)

    def test_a_tree_that_keeps_the_rules_passes(self):
        self.assertEqual(self.check(CLEAN), [])

    def test_each_forbidden_line_is_found_at_its_place(self):
        for rule, path, line in FORBIDDEN:
            with self.subTest(rule=rule, path=path, line=line):
                found = self.check({**CLEAN, path: f"// A file.\n{line}\n"})
                self.assertEqual([(v.path, v.line, v.rule) for v in found], [(path, 2, rule)])

    def test_torch_and_protobuf_in_one_file_are_found(self):
        text = '#include <torch/library.h>\n#include "cpshard/v1/types.pb.h"\n'
        found = self.check({"tests/torch/a.cc": text})
        self.assertEqual([(v.line, v.rule) for v in found], [(2, "torch-meets-protobuf")])


if __name__ == "__main__":
    unittest.main()
