"""The operators under torch.compile, torch's own checks of operators, and gradients by difference
quotients; in real gloo groups."""

import random

import operator_cases as cases
import torch
from operator_cases import drawn, ops, same, token_map
from torch._dynamo.backends.debugging import aot_eager

LAYOUTS = 50


def group_name(mesh):
    return mesh.get_group().group_name


def compiled_over_many_layouts(mesh):
    """(compilations, layouts whose values or gradients differ from those without the compiler)."""
    torch._dynamo.reset()
    name, compilations, wrong = group_name(mesh), [], []

    def step(x, indices, order, moves, sizes, original, padded):
        local = ops.shard_token_tensor(x, indices, None, None, original, padded, 1, 0.5) * 2
        return ops.gather_token_tensor(local, order, moves, sizes, None, None, original, padded, 1,
                                       True, None, name)

    def backend(graph, inputs):
        compilations.append(graph)
        return aot_eager(graph, inputs)

    compiled = torch.compile(step, backend=backend, fullgraph=True)
    for seed in range(LAYOUTS):
        rng = random.Random(seed)
        columns = cases.documents(2, [rng.randint(1, 5) for _ in range(rng.randint(1, 6))])
        order, moves, sizes = token_map(columns)
        padded, original = sum(sizes), sum(sizes) - rng.randint(1, 3)
        arguments = (torch.tensor(columns[mesh.get_local_rank()]), order, moves, sizes, original,
                     padded)
        a, b = (drawn([3, original], torch.float32, seed).requires_grad_() for _ in range(2))
        results = compiled(a, *arguments), step(b, *arguments)
        for result in results:
            result.backward(drawn(result.shape, torch.float32, seed=1))
        if not (same(*results) and same(a.grad, b.grad)):
            wrong.append(seed)
    return len(compilations), wrong


def test_one_dynamic_graph_serves_every_layout(worlds):
    for compilations, wrong in worlds.run(2, compiled_over_many_layouts):
        assert wrong == [] and compilations <= 2, compilations


def compiled_sequence(mesh):
    torch._dynamo.reset()
    name, compilations = group_name(mesh), []

    def backend(graph, inputs):
        compilations.append(graph)
        return aot_eager(graph, inputs)

    compiled = torch.compile(lambda x: ops.gather_sequence(x * 2, name), backend=backend,
                             fullgraph=True)
    equal = True
    for length in range(2, 12):
        a, b = (drawn([2, length, 3], torch.float32, length).requires_grad_() for _ in range(2))
        results = compiled(a), ops.gather_sequence(b * 2, name)
        for result in results:
            result.sum().backward()
        equal = equal and same(*results) and same(a.grad, b.grad)
    return len(compilations) <= 2 and equal


def test_a_compiled_sequence_gather_keeps_its_length_symbolic(worlds):
    assert worlds.run(2, compiled_sequence) == [True, True]


def checks_of_torch(mesh):
    """torch.library.opcheck: schema, registration, shapes under tracing, and compiled gradients."""
    name, check, results = group_name(mesh), torch.library.opcheck, []
    order, moves, sizes = token_map(cases.round_robin(2, 3))
    for grad in (False, True):
        x, full = (torch.randn(2, n, 3, requires_grad=grad) for n in (6, 12))
        verb = (order, moves, sizes, None, None, 10, 12, 1, True, None, name)
        results += [
            check(ops._gather_tokens.default, (x, order, moves, sizes, 1, name, False, "verb")),
            check(ops._gather_sequence.default, (x, 1, name, False)),
            check(ops.gather_tokens.default, (x, order, moves, sizes, 1, name)),
            check(ops.gather_sequence.default, (x, name)),
            check(ops.gather_token_tensor.default, (x, *verb)),
            check(ops.shard_token_tensor.default, (full, order[:6], None, None, 10, 12)),
        ]
    # Its lengths are values of the runs: it is not for graphs.
    streams = ([torch.zeros(2, 12)], torch.tensor([[0, 3], [-1, 2]]), [1], [0.0])
    results.append(check(ops.shard_streams.default, streams,
                         test_utils=("test_schema", "test_autograd_registration")))
    return {outcome for result in results for outcome in result.values()}, len(results)


def test_the_operators_pass_torch_s_own_checks(worlds):
    assert worlds.run(2, checks_of_torch) == [({"SUCCESS"}, 13)] * 2


def largest_difference(mesh, sliced):
    """Between gradients and difference quotients. One rank at a time moves an element of its shard
    while the others hold still; the loss is what all ranks make of the full tensor together, or,
    sliced, what the rank itself makes of it."""
    rank, worst, step = mesh.get_local_rank(), 0.0, 1e-6
    order, moves, sizes = token_map(cases.documents(2, [2, 1]))
    local = drawn([2, sizes[0], 2], torch.float64, seed=rank).requires_grad_()
    weights = drawn([2, sum(sizes), 2], torch.float64, seed=50 + rank)

    def losses(owner, moved):
        full = ops.gather_tokens(moved, order, moves, sizes, 1, group_name(mesh), sliced)
        own = (full * full * weights).sum()
        total = own.detach().clone()
        torch.distributed.all_reduce(total, group=mesh.get_group())
        return own, total

    losses(None, local)[0].backward()
    for owner in range(mesh.size()):
        for i in range(local.numel()):
            told = []
            for sign in (1, -1):
                moved = local.detach().clone()
                if rank == owner:
                    moved.view(-1)[i] += sign * step
                own, total = losses(owner, moved)
                told.append((own if sliced else total).item())
            if rank == owner:
                quotient = (told[0] - told[1]) / (2 * step)
                worst = max(worst, abs(quotient - local.grad.view(-1)[i].item()))
    return worst


def test_gradients_are_difference_quotients_of_the_loss_they_are_for(worlds):
    for sliced in (False, True):
        assert max(worlds.run(2, largest_difference, sliced)) < 1e-6
