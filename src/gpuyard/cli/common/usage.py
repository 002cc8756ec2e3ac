"""Explains a command line that cannot be understood: what is wrong, and what was probably meant."""

from __future__ import annotations

import re
from difflib import get_close_matches
from pathlib import Path

import typer

from gpuyard.errors import UsageError

EXAMPLES = {
    "simulate": "gpuyard simulate demo --scheduler sjf/fewest/easy",
    "compare": "gpuyard compare demo",
    "show": "gpuyard show sjf",
    "check": "gpuyard check ./mine.py",
    "train": "gpuyard train PickJob --workload 'family on 8'",
    "evaluate": "gpuyard evaluate learned:gpu",
    "explain": "gpuyard explain learned:gpu",
    "run": "gpuyard run core --quick",
    "report": "gpuyard report results/core",
    "submit": "gpuyard submit -- python train.py",
    "trace info": "gpuyard trace info log.swf.gz",
    "trace convert": "gpuyard trace convert log.swf.gz jobs.csv",
    "trace generate": "gpuyard trace generate family:shape=bursty jobs.csv",
    "trace fetch": "gpuyard trace fetch NAME (gpuyard list datasets)",
}
_OTHER_NAMES = {  # what other programs, and earlier versions, call it
    "--save": "--out", "--output": "--out", "--csv": "--format csv", "--json": "--format json", "--policy": "--scheduler",
    "--algorithm": "--scheduler", "--trace": "WORKLOAD, without an option", "--workload": "WORKLOAD, without an option",
    "--metrics": "--metric", "--nodes": "--cluster", "--gpus": "--cluster",
}  # fmt: skip
_VERBS = {"help": "--help", "version": "--version", "sim": "simulate", "ls": "list", "eval": "evaluate", "test": "check"}
_WORDS = (
    (r"Input should be a valid integer.*", "not a whole number"),
    (r"Input should be a valid number.*", "not a number"),
    (r"Value error, ", ""),
    (r"^Invalid value for (?:'.*' / )?'(-[^']*)'", r"\1"),
    (r"^Got unexpected extra argument(?:\(s\)|s)? \((.*)\)$", r"too many arguments: \1"),
)
_CLUSTER = re.compile(r"\d+x\d+(:.*)?|.*\.toml")


def usage_error(error: Exception) -> UsageError | None:
    """Return what the parser of the command line found as an error with a hint; None for an error of another kind."""
    if not hasattr(error, "format_message"):
        return None
    context: typer.Context | None = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "gpuyard"
    message = (
        str(getattr(error, "message", "") if _is_unknown(error) else error.format_message()).partition(". Did you mean")[0].rstrip(".")
    )
    if not message:
        return UsageError("no command" if path == "gpuyard" else f"{path}: incomplete", hint=f"{path} --help")
    return UsageError(_plain(message), hint=_hint(error, message, context, path))


def _plain(message: str) -> str:
    """Say in words for people what the parser says in those of its types."""
    for pattern, words in _WORDS:
        message = re.sub(pattern, words, message)
    message = re.sub(r"argument '(\w+)'", lambda found: f"argument {found[1].upper()}", message)
    return message[:1].lower() + message[1:]


def _is_unknown(error: Exception) -> bool:
    return hasattr(error, "possibilities")


def _hint(error: Exception, message: str, context: typer.Context | None, path: str) -> str:
    """Say what was probably meant, else where to read more."""
    verb = path.removeprefix("gpuyard").strip()
    if _is_unknown(error):
        return _for_option(str(getattr(error, "option_name", "")), context) or f"{path} --help"
    named = re.fullmatch(r"No such command '(.*)'", message)
    if named and context is not None:
        return _for_verb(named[1], list(getattr(context.command, "commands", ())), path)
    extra = re.fullmatch(r"Got unexpected extra argument(?:\(s\)|s)? \((.*)\)", message)
    if extra and context is not None:
        return _for_extra(extra[1].split(" ")[0], context) or f"{path} --help"
    return f"e.g. {EXAMPLES[verb]}" if message.startswith("Missing") and verb in EXAMPLES else f"{path} --help"


def _for_option(name: str, context: typer.Context | None) -> str:
    known = {option.lstrip("-"): option for parameter in context.command.params for option in parameter.opts} if context is not None else {}
    if name == "--out":  # every verb that computes something has it; the tools for files take names, as `cp` does
        return "OUT is the last word, without an option" if "out" in known else "it goes to stdout: -f csv > FILE"
    if name == "--by":
        return "gpuyard simulate has it; --report shows who gains and who loses, by user, partition and size"
    other = _OTHER_NAMES.get(name, "")
    if other.split(" ")[0].lstrip("-") in known or (other and not other.startswith("-")):
        return f"did you mean {other}?"
    bare = name.lstrip("-")
    plural = [each for each in (bare.removesuffix("s"), f"{bare}s") if each in known]
    near = plural or get_close_matches(bare, [each for each in known if len(each) > 1], n=1)
    return f"did you mean {known[near[0]]}?" if near else ""


def _for_verb(name: str, verbs: list[str], path: str) -> str:
    near = _VERBS.get(name) if path == "gpuyard" else None
    near = near or next(iter(get_close_matches(name, verbs, n=1)), "")
    if near:
        return f"did you mean {path} {near}?"
    if path == "gpuyard" and (Path(name).suffix or ":" in name or name == "demo"):
        return f"did you mean gpuyard compare {name}?"
    return f"{path} --help"


def _for_extra(word: str, context: typer.Context) -> str:
    """Name the option that a stray word belongs to, if the verb has it."""
    known = {option for parameter in context.command.params for option in parameter.opts}
    option = "--cluster" if _CLUSTER.fullmatch(word) else "--scheduler" if "/" in word or word.isalnum() else ""
    return f"did you mean {option} {word}?" if option in known else ""
