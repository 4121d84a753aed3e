"""Which streams of a batch are cut at once on a GPU, and which by ATen: here on CPU tensors, as if
they lay there. test_dropin_batches.py holds the bytes, test_gpu_streams.py runs on a GPU."""

import logging

import pytest
import torch
from dropin_cases import Ranks, copied, packed, plain, same

import cpshard.torch as ours
from cpshard.torch import cuts_at_once, streams


@pytest.fixture
def gpu(monkeypatch):
    """All tensors lie on a GPU; what is called is noted: how many streams at a time."""
    calls = []
    operators = cuts_at_once.ops

    class Noting:
        def shard_streams(self, streams, *rest):
            calls.append(len(streams))
            return operators.shard_streams(streams, *rest)

    monkeypatch.setattr(cuts_at_once, "ops", Noting())
    monkeypatch.setattr(cuts_at_once, "_is_on_gpu", lambda tensor: not tensor.requires_grad)
    monkeypatch.setattr(streams, "_is_cut_here", lambda value: isinstance(value, torch.Tensor))
    return calls


@pytest.mark.parametrize("shard_batch", [ours.shard_batch_contiguous,
                                         ours.shard_batch_load_balanced])
def test_streams_that_are_cut_alike_are_cut_by_one_call(gpu, shard_batch):
    shard_batch(Ranks(2, 1), None, plain(21))
    assert gpu == [2]  # input_ids and labels


def test_a_stream_that_requires_grad_is_left_to_aten(gpu):
    batch = {"inputs_embeds": torch.randn(2, 21, 3, requires_grad=True),
             "labels": torch.arange(42).view(2, 21)}
    ours.shard_batch_load_balanced(Ranks(2), None, batch)
    assert gpu == [1] and batch["inputs_embeds"].requires_grad


def test_chunks_are_taken_apart(gpu, monkeypatch):
    at_once, options = packed(), dict(num_chunks=2)
    at_once = {name: at_once[name] for name in ("input_ids", "labels", "position_ids", "qkv_format",
                                                "seq_lens", "seq_lens_padded")}
    by_library = copied(at_once)
    # What the layout reads is on the CPU.
    monkeypatch.setattr(streams, "_is_cut_here", lambda value: isinstance(value, torch.Tensor) and
                        value.shape[-1] == 24)
    _, made, _ = ours.shard_batch_thd(Ranks(2, 1), None, at_once, **options)
    calls = list(gpu)
    monkeypatch.setattr(streams, "_is_cut_here", lambda value: False)
    _, expected, _ = ours.shard_batch_thd(Ranks(2, 1), None, by_library, **options)
    assert calls == [3]
    for name in ("input_ids", "labels", "position_ids"):
        assert made[name].shape[0] == 2 and same(made[name], expected[name]), name


@pytest.fixture
def refusing(monkeypatch):
    """All tensors lie on a GPU that does what the function says, which is told to this."""
    def refuse_by(function):
        class Refusing:
            def shard_streams(self, *_):
                function()

        monkeypatch.setattr(cuts_at_once, "ops", Refusing())
        monkeypatch.setattr(cuts_at_once, "_is_on_gpu", lambda tensor: True)
        monkeypatch.setattr(cuts_at_once, "_said", set())
        monkeypatch.setattr(streams, "_is_cut_here", lambda value: isinstance(value, torch.Tensor))
    return refuse_by


def raising(error):
    def function():
        raise error
    return function


@pytest.mark.parametrize("kind", [NotImplementedError, torch.OutOfMemoryError])
def test_where_the_library_cannot_do_it_aten_cuts_and_the_log_says_so_once(
        refusing, monkeypatch, caplog, kind):
    """A device may be listed and yet not be usable: that is known when it is used."""
    refusing(raising(kind("no machine code for it\nC++ stack: ...")))
    batch, expected = plain(21), plain(21)
    for _ in range(2):
        made = copied(batch)
        ours.shard_batch_load_balanced(Ranks(2), None, made)
    monkeypatch.undo()
    ours.shard_batch_load_balanced(Ranks(2), None, expected)
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.WARNING,
         "batches on cpu are cut by torch, stream by stream: no machine code for it")]
    assert all(same(made[name], expected[name]) for name in ("input_ids", "labels"))


def test_memory_that_is_there_again_is_used_again(gpu, monkeypatch):
    operators = cuts_at_once.ops

    class OnceFull:
        full = True

        def shard_streams(self, *arguments):
            if self.full:
                self.full = False
                raise torch.OutOfMemoryError("8 MB")
            return operators.shard_streams(*arguments)

    monkeypatch.setattr(cuts_at_once, "ops", OnceFull())
    for _ in range(2):
        ours.shard_batch_load_balanced(Ranks(2), None, plain(21))
    assert gpu == [2]


@pytest.mark.parametrize("kind", [RuntimeError, ValueError])
def test_what_else_goes_wrong_is_told(refusing, kind):
    refusing(raising(kind("illegal address")))
    with pytest.raises(kind, match="illegal address"):
        ours.shard_batch_load_balanced(Ranks(2), None, plain(21))


def test_no_driver_is_asked_before_a_tensor_of_a_gpu_comes(monkeypatch):
    class Asked:
        def __getattr__(self, name):
            raise AssertionError(f"{name}: the driver was asked")

    monkeypatch.setattr(cuts_at_once, "ops", Asked())
    ours.shard_batch_load_balanced(Ranks(2), None, plain(21))
    batch = {"inputs_embeds": torch.randn(2, 21, 3, requires_grad=True),
             "labels": torch.arange(42).view(2, 21)}
    ours.shard_batch_load_balanced(Ranks(2), None, batch)
