"""Runs the ```console blocks of a Markdown page and compares what they print with what is shown.

A line that begins with "$ " is a command; lines behind a trailing backslash belong to it; what follows,
up to the next command or the end of the block, is its output, both streams together. In it a line
"..." stands for any lines, and "..." inside a line for any text. A command must succeed. All blocks
of a page run in one shell, one after the other.
"""

import dataclasses
import re
import subprocess

MARK = "console-block-ends"


@dataclasses.dataclass
class Command:
    line: int  # of the page, from 1 on
    text: str
    shown: list[str]


def commands_of(page):
    """The commands of a page's text, in order."""
    commands, inside = [], False
    lines = page.splitlines()
    for number, line in enumerate(lines, 1):
        if line.startswith("```"):
            inside = not inside and line.strip() == "```console"
        elif not inside:
            continue
        elif line.startswith("$ "):
            commands.append(Command(number, line[2:], []))
        elif commands and not commands[-1].shown and commands[-1].text.endswith("\\"):
            commands[-1].text += "\n" + line
        elif commands:
            commands[-1].shown.append(line)
        else:
            raise ValueError(f"line {number}: output without a command: {line}")
    return commands


def run(commands, folder, environment):
    """What each of them printed, and its exit status, run in one bash in `folder`."""
    script = "trap 'kill $(jobs -p) 2> /dev/null; wait' EXIT\n"  # what a page started and did not end
    script += "".join(f"{command.text}\necho \"{MARK} $?\"\n" for command in commands)
    done = subprocess.run(["bash"], input=script, cwd=folder, env=environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=240)
    results, printed = [], []
    for line in done.stdout.splitlines():
        if line.startswith(MARK):
            results.append((printed, int(line.split()[1])))
            printed = []
        else:
            printed.append(line)
    return results


def matches(shown, printed):
    """Whether the lines are those shown, with what "..." stands for."""
    if not shown:
        return not printed
    if shown[0].strip() == "...":
        return any(matches(shown[1:], printed[skip:]) for skip in range(len(printed) + 1))
    pattern = ".*".join(re.escape(part) for part in shown[0].rstrip().split("..."))
    return (bool(printed) and re.fullmatch(pattern, printed[0].rstrip()) is not None
            and matches(shown[1:], printed[1:]))


def differences(page, folder, environment):
    """One text per command that did otherwise than the page shows."""
    commands = commands_of(page)
    results = run(commands, folder, environment)
    found = []
    for command, (printed, status) in zip(commands, results):
        if status != 0:
            found.append(f"line {command.line}: $ {command.text}\nended with {status}:\n"
                         + "\n".join(printed))
        elif not matches(command.shown, printed):
            found.append(f"line {command.line}: $ {command.text}\nprinted\n" + "\n".join(printed)
                         + "\nbut the page shows\n" + "\n".join(command.shown))
    for command in commands[len(results):]:
        found.append(f"line {command.line}: $ {command.text}\nwas not reached")
    return found
