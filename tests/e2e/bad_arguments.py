"""Command lines that are refused: options that do not parse, absent files, wrong use."""

from typing import NamedTuple

from bad_batches import BASE, INVALID
from programs import write_batch

MISSING, PRECONDITION = "NOT_FOUND", "FAILED_PRECONDITION"


class Arguments(NamedTuple):
    name: str
    code: str  # or "USAGE", with one text
    texts: tuple
    arguments: list


OPTIONS = (  # what stands in the JSON, what the message names
    ('{"round_robin": {}, "contiguous": {}}', ("layout",)),
    ('{"surprise": 1, "round_robin": {}}', ("surprise",)),
    ('{"round_robin": {"surprise": 1}}', ("surprise",)),
    ('{"round_robin": {}, "extra_streams": [{"named": "labels"}]}', ("named",)),
    ('{"model": {"family": 99}}', ("family", "99")),
    ('{"model": {"famly": 1}}', ("famly",)),
    ('{"kimi": {"variant": "K4"}}', ("K4",)),
    ('{"kimi": {"variant": 77}}', ("77",)),
    ('{"round_robin": 7}', ("round_robin",)),
    ('{"round_robin": {"keep_primary_full": "perhaps"}}', ("perhaps",)),
    ('{"contiguous": {"pad_multiple": "many"}}', ("many",)),
    ('{"contiguous": {"pad_multiple": 1.5}}', ("1.5",)),
    ('{"contiguous": {"pad_multiple": 9223372036854775808}}', ("9223372036854775808",)),
    ('{"contiguous": {}, "padding_token_id": -9223372036854775809}', ("9223372036854775809",)),
    ('{"round_robin": {}, "extra_streams": [{"name": "x", "seq_axis": 2147483648}]}',
     ("2147483648",)),
    ('{"contiguous": {}, "extra_streams": [{"name": "x", "int_pad": 1, "float_pad": 1}]}',
     ("pad",)),
    ('{"round_robin": {}', ()), ('{', ()), ('{} {}', ()), ('{"round_robin"\n:\n\n}', ()),
    ('{"round_robin": {}, "padding_token_id": "\\ud800"}', ()))

# After `cpshard`: the word that the message names.
USAGE = (
    ("shard --cp abc", "abc"), ("shard --cp 4.5", "4.5"), ("shard --cp 0x4", "0x4"),
    ("shard --cp 99999999999999999999", "99999999999999999999"), ("shard --cp=", "--cp"),
    ("shard --surprise", "--surprise"), ("shard surprise", "surprise"), ("shard --ranks a", "a"),
    ("plan --len many", "many"), ("plan --in a --len 4", "--len"),
    ("plan --len 4 --docs a", "a"), ("plan --len 4 --docs 2,-2", "-2"), ("plan --docs 4 --in x", "--in"),
    ("gather --fill many", "many"), ("gather --seq-axis x", "x"), ("gather --surprise",
                                                                   "--surprise"))


def rows(folder):
    source = write_batch(folder / "good.safetensors", BASE)
    (folder / "file").write_text("precious")
    (folder / "full").mkdir()
    (folder / "full" / "precious").write_text("precious")
    made = []
    names = {"--cp": "2", "--options": '{"round_robin": {}}', "--in": str(source),
             "--out": "{folder}/out"}

    def add(name, *texts, code=INVALID, command="shard", **changes):
        values = names | {f"--{key}": value for key, value in changes.items()}
        if command == "plan":
            del values["--out"]
        arguments = [f"{key}={value}" for key, value in values.items() if value is not None]
        made.append(Arguments(name, code, texts, [command, *arguments]))

    for options, texts in OPTIONS:
        add(f"options {options}", *texts, options=options)
        (folder / f"options{len(made)}.json").write_text(" \n" + options)
        add(f"a file of options {options}", *texts, options=folder / f"options{len(made)}.json")
    add("an options file that is not there", "absent.json", code=MISSING, options="absent.json")
    add("options that are a folder", "full", code=MISSING, options="{folder}/full")
    add("an input that is not there", "absent.safetensors", code=MISSING,
        **{"in": "{folder}/absent.safetensors"})
    add("an input that is a folder", "full", code=MISSING, **{"in": "{folder}/full"})
    add("an output folder that is not empty", "full", code=PRECONDITION, out="{folder}/full")
    add("an output folder that is a file", "file", code=PRECONDITION, out="{folder}/file")
    add("an output folder below a file", "file/out", code=PRECONDITION, out="{folder}/file/out")
    for cp in ("-1", "0", "4097", "4294967297", "9223372036854775807"):
        add(f"--cp {cp}", "cp_size", cp, cp=cp)
        add(f"plan --cp {cp}", "cp_size", cp, cp=cp, command="plan")
    for rank in ("-1", "2", "4294967296", "9223372036854775807"):
        add(f"--ranks {rank}", f"rank {rank}", ranks=rank)
        add(f"plan --ranks {rank}", f"rank {rank}", ranks=rank, command="plan")
    add("--ranks 0,1,0", "rank 0", "twice", ranks="0,1,0")
    add("plan --len -1", "-1", len="-1", command="plan", **{"in": None})
    for length in (2**40, 2**60, 2**63 - 1):
        add(f"plan --len {length}", f"{length}", len=length, command="plan", **{"in": None})

    for command, text in USAGE:
        name, *more = command.split()
        arguments = [name, *more]
        if name == "shard" or name == "plan":
            for key, value in names.items():
                if key not in more and not (name == "plan" and key in ("--in", "--out")):
                    arguments[1:1] = [key, value]
        else:
            for key in ("--layouts", "--in", "--stream", "--out"):
                arguments[1:1] = [key, "x"]
        made.append(Arguments(f"cpshard {command}", "USAGE", (text,), arguments))
    for value in ("", "99999999999999999999"):
        every = [part for pair in names.items() for part in pair]
        made.append(Arguments(f"shard --ranks '{value}'", "USAGE", ("ranks",), [
            "shard", *every, "--ranks", value]))
    for key in names:
        add(f"shard without {key}", key, code="USAGE", **{key[2:]: None})
    made.append(Arguments("plan without a batch or a length", "USAGE", ("--len",), [
        "plan", "--cp=2", "--options={}"]))
    made.append(Arguments("an unknown subcommand", "USAGE", ("ubcommand",), ["surprise"]))
    made.append(Arguments("no subcommand", "USAGE", ("ubcommand",), []))
    return made
