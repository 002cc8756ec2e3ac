"""`gpuyard completion`: the script that a shell loads; and `gpuyard __complete`, which the script calls."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from gpuyard.cli.common import options
from gpuyard.cli.common.messages import say
from gpuyard.cli.completion.words import VerbParser, candidates
from gpuyard.errors import GpuyardError, UsageError
from gpuyard.registry import unknown_name

CALL = "__complete"
SCRIPTS = Path(__file__).parent / "scripts"
WHERE = {  # to load it at every start
    "bash": "echo 'eval \"$(gpuyard completion bash)\"' >> ~/.bashrc",
    "zsh": "echo 'eval \"$(gpuyard completion zsh)\"' >> ~/.zshrc  (below the line with compinit)",
    "fish": "gpuyard completion fish > ~/.config/fish/completions/gpuyard.fish",
}


def completion(
    shell: Annotated[str, typer.Argument(help="bash, zsh or fish.", show_default=False)],
    verbose: options.Verbose = False,
) -> None:
    """Print the script that lets a shell complete verbs, options, policies, metrics, clusters, workloads and files.

    bash: `eval "$(gpuyard completion bash)"` in `~/.bashrc`. zsh: `eval "$(gpuyard completion zsh)"` in `~/.zshrc`, below `compinit`.
    fish: `gpuyard completion fish > ~/.config/fish/completions/gpuyard.fish`.
    """
    if shell not in WHERE:
        raise unknown_name("shell", shell, list(WHERE))
    sys.stdout.write((SCRIPTS / f"gpuyard.{shell}").read_text(encoding="utf-8"))
    sys.stdout.flush()
    if sys.stdout.isatty():
        say(f"hint: {WHERE[shell]}")


def complete(arguments: Sequence[str], command: VerbParser) -> int:
    """Answer a shell. It shows nothing but candidates: what goes wrong is told by an exit code alone."""
    try:
        sys.stdout.write(answer(arguments, command))
    except (GpuyardError, OSError, ValueError):
        return 1
    return 0


def answer(arguments: Sequence[str], command: VerbParser) -> str:
    """Return what a shell asks for: `bash LINE WORDBREAKS`, `zsh WORDS… CURRENT` or `fish WORDS… -- CURRENT`."""
    shell, *rest = arguments or [""]
    if shell == "bash" and len(rest) == 2:
        words, current, quoted = split(rest[0])
        found = candidates(words[1:], current, command)
        cut = 0 if quoted else 1 + max((current.rfind(letter) for letter in set(rest[1]) - set(" \t\n\"'")), default=-1)
        return found.text(current, cut)
    if shell == "zsh" and rest:
        return candidates(rest[:-1], rest[-1], command).text(rest[-1])
    if shell == "fish" and len(rest) >= 2 and rest[-2] == "--":
        return candidates(rest[:-2], rest[-1], command).text(rest[-1])
    raise UsageError(f"{CALL}: called by the scripts of gpuyard completion")


def split(line: str) -> tuple[list[str], str, bool]:
    """Split an incomplete command line as a shell does: the whole words, the last one, and whether it stands in open quotes."""
    words: list[str] = []
    current, quote, escaped, begun = "", "", False, False
    for letter in line:
        if escaped:
            current, escaped = current + letter, False
        elif letter == "\\" and quote != "'":
            escaped = begun = True
        elif quote:
            quote, current = ("", current) if letter == quote else (quote, current + letter)
        elif letter in "\"'":
            quote, begun = letter, True
        elif letter in " \t\n":
            words += [current] if begun else []
            current, begun = "", False
        else:
            current, begun = current + letter, True
    return words, current, bool(quote)
