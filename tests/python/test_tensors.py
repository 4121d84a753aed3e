"""Batches as bytes and back, messages with a body, frames: what needs no server."""

import numpy as np
import pytest

from cpshard import Error
from cpshard._proto import service_pb2
from cpshard.errors import error_of
from cpshard.frames import IncomingAnswer, OutgoingBatch, join, split
from cpshard.options import options_of
from cpshard.tensors import dense, entries_of, view

torch = pytest.importorskip("torch")
DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]


def memory_of(tensor):
    return tensor.data.__array_interface__["data"][0]


class TestTensors:
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_a_dense_array_is_sent_from_where_it_lies(self, dtype):
        array = np.arange(24).astype(dtype).reshape(2, 3, 4)
        tensor = dense("x", array)
        assert memory_of(tensor) == array.__array_interface__["data"][0]
        assert bytes(tensor.data) == array.tobytes() and tensor.dims == (2, 3, 4)

    @pytest.mark.parametrize("dtype", [*DTYPES, "bfloat16"])
    def test_a_torch_tensor_is_sent_from_where_it_lies_and_comes_back_the_same(self, dtype):
        tensor = torch.arange(24).to(getattr(torch, dtype)).reshape(2, 3, 4)
        sent = dense("x", tensor)
        assert memory_of(sent) == tensor.data_ptr()
        back = view(sent.data.copy(), sent.dtype, sent.dims, "torch")
        assert back.dtype == tensor.dtype and torch.equal(back, tensor)

    def test_what_is_not_dense_is_copied_in_order(self):
        array = np.arange(24).reshape(4, 6)
        for value, want in ((array.T, array.T.tolist()), (array[:, ::2], array[:, ::2].tolist()),
                            (array.astype(">i8"), array.tolist())):
            sent = dense("x", value)
            assert view(sent.data, sent.dtype, sent.dims).tolist() == want
        expanded = torch.arange(3).expand(2, 3)
        sent = dense("x", expanded)
        assert view(sent.data, sent.dtype, sent.dims).tolist() == [[0, 1, 2]] * 2

    @pytest.mark.parametrize("dtype", ["bool", "int64", "bfloat16"])
    @pytest.mark.parametrize("shape, strides", [
        ((1,), (3,)), ((1, 1), (3, 5)), ((1,), (0,)), ((1, 4), (9, 1)), ((0,), (3,)),
        ((0, 2), (3, 5)), ((2, 0), (3, 5))])
    def test_strides_that_lead_nowhere_do_not_matter(self, dtype, shape, strides):
        """Of an axis of one: a column of a table of one row, for instance."""
        table = torch.tensor([0, 1, 0, 0, 1, 1, 0, 0]).to(getattr(torch, dtype))
        tensor = table.as_strided(shape, strides, 1)
        sent = dense("x", tensor)
        assert sent.dims == shape and sent.data.size == tensor.nbytes
        if tensor.numel():
            assert sent.data.strides == (1,) and memory_of(sent) == tensor.data_ptr()
        wanted = [1, 0, 0, 1][:tensor.numel()]
        assert view(sent.data, sent.dtype, sent.dims, "torch").flatten().tolist() == wanted

    def test_what_torch_will_not_show_the_bytes_of_is_refused_with_its_name(self):
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode():
            fake = torch.ones(2)
        with pytest.raises(ValueError, match="stream 'x' is a FakeTensor and has no bytes"):
            dense("x", fake)

    def test_a_tensor_that_requires_grad_is_sent_as_values(self):
        sent = dense("x", torch.ones(2, 2, requires_grad=True))
        assert view(sent.data, sent.dtype, sent.dims).tolist() == [[1, 1], [1, 1]]

    @pytest.mark.parametrize("library", ["numpy", "torch"])
    @pytest.mark.parametrize("dims", [(0,), (2, 0), ()])
    def test_empty_and_0_d_tensors_keep_their_shape(self, library, dims):
        array = np.ones(dims, np.int64)
        sent = dense("x", torch.from_numpy(array) if library == "torch" else array)
        assert tuple(view(sent.data, sent.dtype, sent.dims, library).shape) == dims

    def test_what_comes_back_may_be_written_to_and_keeps_its_memory_alive(self):
        tensor = view(np.zeros(64, np.uint8), "i64", (8,), "torch")
        tensor += 1
        assert tensor.tolist() == [1] * 8

    def test_what_cannot_be_sent_is_refused_with_its_name(self):
        for value, words in ((np.ones(2, np.complex64), "complex64"),
                             (torch.ones(2, dtype=torch.complex64), "complex64"),
                             (torch.empty(2, device="meta"), "meta"),
                             (np.array(["a"]), "<U1")):
            with pytest.raises(ValueError, match=f"'x'.*{words}"):
                dense("x", value)

    def test_a_batch_leaves_out_what_is_none_and_takes_lists_apart(self):
        batch = {"a": None, "b": [np.ones(2), np.ones(3)], "c": "thd", "d": np.int64(3), "e": True}
        assert [(name, type(value).__name__) for name, value in entries_of(batch)] == [
            ("b.0", "ndarray"), ("b.1", "ndarray"), ("c", "str"), ("d", "int"), ("e", "bool")]
        for batch, words in (({"x": object()}, "'x' is a object"), ({3: 1}, "named 3"), (7, "int"),
                             ({"x": [1, 2]}, "'x' is a list")):
            with pytest.raises(ValueError, match=words):
                list(entries_of(batch))

    def test_an_int_over_64_bits_is_refused(self):
        with pytest.raises(ValueError, match="'n' is 9223372036854775808"):
            OutgoingBatch({"n": 1 << 63})


class TestMessages:
    @pytest.mark.parametrize("size", [0, 1, 127, 128, 300, 20_000])
    def test_a_body_goes_and_comes_as_protobuf_has_it(self, size):
        head = service_pb2.ShardFrame(batch_id=300, frame_seq=2, last=True)
        body = bytes(range(256)) * (size // 256 + 1)
        message = join(head, [memoryview(body)[:size // 2], body[size // 2:size]])
        read = service_pb2.ShardFrame.FromString(message)
        assert read.body == body[:size] and read.batch_id == 300
        rest, got = split(read.SerializeToString())
        assert bytes(got) == body[:size] and service_pb2.ShardFrame.FromString(rest) == head

    def test_a_message_that_is_cut_off_is_no_message(self):
        message = join(service_pb2.ShardFrame(batch_id=300), [b"x" * 100])
        for length in (len(message) - 1, 4, 1):
            with pytest.raises(ValueError, match="cut off"):
                split(message[:length])

    def test_small_tensors_such_as_lengths_come_first(self):
        batch = {"input_ids": np.ones((2, 90), int), "seq_lens": np.ones((2, 3), int)}
        begin = OutgoingBatch(batch).begin
        assert [(entry.name, entry.offset) for entry in begin.entries] == [
            ("input_ids", 64), ("seq_lens", 0)]

    @pytest.mark.parametrize("chunk", [64, 256, 1 << 20])
    def test_frames_carry_the_batch_buffer_from_front_to_back(self, chunk):
        batch = {"a": np.arange(100, dtype=np.int64), "b": np.ones(7, np.uint8), "c": 1.5,
                 "d": np.empty((0, 3), np.float32)}
        out = OutgoingBatch(batch, options_of("round_robin"), 4, (1, 3))
        frames = [service_pb2.BatchFrame.FromString(frame) for frame in out.frames(9, chunk)]
        assert [frame.frame_seq for frame in frames] == list(range(len(frames)))
        assert [frame.last for frame in frames] == [False] * (len(frames) - 1) + [True]
        assert [frame.HasField("begin") for frame in frames] == [True] + [False] * (len(frames) - 1)
        assert all(len(frame.body) % 64 == 0 and frame.batch_id == 9 for frame in frames)
        buffer, begin = b"".join(frame.body for frame in frames), frames[0].begin
        assert [frame.offset for frame in frames] == [chunk * i for i in range(len(frames))]
        assert len(buffer) == begin.total_bytes == out.total_bytes
        assert list(begin.ranks) == [1, 3] and begin.cp_size == 4
        for entry in begin.entries:
            if not entry.HasField("scalar"):
                assert entry.offset % 64 == 0
                assert buffer[entry.offset:entry.offset + entry.nbytes] == \
                    batch[entry.name].tobytes()

    def test_a_batch_without_bytes_is_one_frame(self):
        [frame] = OutgoingBatch({"c": 1}).frames(1)
        assert service_pb2.BatchFrame.FromString(frame).last


def answer_frames(body, chunk):
    begin = service_pb2.ShardsBegin(num_shards=1, total_bytes=len(body))
    shard = service_pb2.Shard()
    shard.entries.add(name="x", dtype=6, dims=[len(body) // 8], nbytes=len(body), extent=1)
    frames = [service_pb2.ShardFrame(batch_id=1, begin=begin, shards=[shard])]
    for at in range(0, len(body), chunk):
        frames.append(service_pb2.ShardFrame(batch_id=1, frame_seq=len(frames), offset=at))
    frames[-1].last = True
    pieces = [b""] + [body[at:at + chunk] for at in range(0, len(body), chunk)]
    return list(zip(frames, map(memoryview, pieces)))


class TestAnswers:
    BODY = np.arange(32, dtype=np.int64).tobytes()

    def test_bodies_land_one_behind_the_other(self):
        answer = IncomingAnswer(1 << 20)
        for frame, body in answer_frames(self.BODY, 64):
            assert not answer.complete
            answer.take(frame, body)
        assert answer.complete
        [shard] = answer.shards("numpy")
        assert shard.batch["x"].tolist() == list(range(32)) and shard.cuts["x"].extent == "local"

    @pytest.mark.parametrize("damage, words", [
        (lambda frames: frames.pop(1), "frame 1 was expected"),
        (lambda frames: frames.append(frames[-1]), "frame 5 was expected"),
        (lambda frames: setattr(frames[1][0], "offset", 64), "lies at 64"),
        (lambda frames: setattr(frames[2][0], "last", True), "it is the last, after 1 of 1"),
        (lambda frames: frames[0][0].ClearField("begin"), "a begin is in frame 0"),
        (lambda frames: frames[0][0].ClearField("shards"), "1 shards were announced"),
        (lambda frames: setattr(frames[0][0].begin, "total_bytes", 1 << 40), "at most 1048576"),
        (lambda frames: setattr(frames[0][0].begin, "total_bytes", 64), "of 64"),
        (lambda frames: setattr(frames[0][0].shards[0].entries[0], "nbytes", 512), "512 of 256"),
    ])
    def test_a_broken_answer_is_refused_with_the_numbers(self, damage, words):
        frames = answer_frames(self.BODY, 64)
        damage(frames)
        answer = IncomingAnswer(1 << 20)
        with pytest.raises(Error, match=words) as raised:
            for frame, body in frames:
                answer.take(frame, body)
            answer.shards("numpy")
        assert raised.value.code == "INTERNAL"


class TestErrors:
    @pytest.mark.parametrize("code, kind", [
        ("INVALID_ARGUMENT", ValueError), ("UNIMPLEMENTED", NotImplementedError),
        ("FAILED_PRECONDITION", RuntimeError), ("NOT_FOUND", KeyError),
        ("DEADLINE_EXCEEDED", TimeoutError), ("UNAVAILABLE", ConnectionError), ("ABORTED", Error)])
    def test_an_error_is_of_the_python_kind_too_and_survives_a_process_boundary(self, code, kind):
        import pickle
        error = error_of(code, "the text", "WHY", {"step": "4"}, 0.5)
        for each in (error, pickle.loads(pickle.dumps(error))):
            assert isinstance(each, kind) and isinstance(each, Error)
            assert (str(each), each.code, each.reason, each.values, each.retry_after) == \
                ("the text", code, "WHY", {"step": "4"}, 0.5)

    @pytest.mark.parametrize("options, words", [
        ({}, "no layout"), ("", "no layout|no field"), ({"round_robbin": {}}, "round_robbin"),
        ("{", "JSON"), ({"contiguous": {"pad_multiple": "x"}}, "x")])
    def test_options_that_are_none_are_refused(self, options, words):
        with pytest.raises(ValueError, match=words):
            options_of(options)

    def test_options_in_every_form_are_the_same(self):
        want = options_of({"contiguous": {"pad_multiple": 4}})
        assert options_of('{"contiguous": {"pad_multiple": 4}}') == want == options_of(want)
        assert options_of("identity") == options_of({"identity": {}})
