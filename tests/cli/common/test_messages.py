"""What goes to stderr: colours on a terminal only, an error and its hint, a line of progress every ten seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from gpuyard.cli.common import messages
from gpuyard.cli.common.messages import progress_lines, say, say_error
from gpuyard.errors import SeveralErrors, UsageError

Said = Callable[[], list[str]]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    return lambda: capsys.readouterr().err.splitlines()


@pytest.fixture
def on_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(sys.stderr), "isatty", lambda _: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_an_error_is_a_line_and_its_hint_another(said: Said):
    say_error(UsageError("no", hint="yes"))
    say_error(UsageError("a: no; hint: yes", hint="see b"))
    say_error("two\nlines")
    assert said() == [
        "gpuyard: error: no", "gpuyard: hint: yes", "gpuyard: error: a: no", "gpuyard: hint: yes; see b", "gpuyard: error: two lines",
    ]  # fmt: skip


def test_several_errors_are_shown_one_after_another(said: Said):
    say_error(SeveralErrors([UsageError("a", hint="b"), UsageError("c")]))
    assert said() == ["gpuyard: error: a", "gpuyard: hint: b", "gpuyard: error: c"]


def test_colours_on_a_terminal(said: Said, on_terminal: None):
    say_error(UsageError("no", hint="yes"))
    say("warning: careful")
    say("note: plain; error: not here")
    error, hint, warning, note = said()
    assert error == "gpuyard: \x1b[1;31merror:\x1b[0m no"
    assert hint == "gpuyard: \x1b[36mhint:\x1b[0m yes"
    assert warning == "gpuyard: \x1b[1;33mwarning:\x1b[0m careful"
    assert note == "gpuyard: note: plain; error: not here"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_no_colours_where_they_are_not_wanted(said: Said, on_terminal: None, monkeypatch: pytest.MonkeyPatch, name: str, value: str):
    monkeypatch.setenv(name, value)
    say_error("no")
    assert said() == ["gpuyard: error: no"]


def test_no_colours_in_a_file(said: Said, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    say_error("no")
    assert said() == ["gpuyard: error: no"]


def test_a_line_of_progress_every_ten_seconds(said: Said, monkeypatch: pytest.MonkeyPatch):
    now = 0.0
    monkeypatch.setattr(messages.time, "monotonic", lambda: now)
    show = progress_lines("simulating")
    for second in range(1, 32):
        now = float(second)
        show(second, 100)
    assert said() == [
        "gpuyard: simulating: 10 of 100, 1m 30s left; Ctrl-C stops",
        "gpuyard: simulating: 20 of 100, 1m 20s left; Ctrl-C stops",
        "gpuyard: simulating: 30 of 100, 1m 10s left; Ctrl-C stops",
    ]


def test_a_slow_first_piece_is_not_taken_for_the_others(said: Said, monkeypatch: pytest.MonkeyPatch):
    now = 0.0
    monkeypatch.setattr(messages.time, "monotonic", lambda: now)
    show = progress_lines("simulating")
    for done, at in ((1, 30.0), (2, 31.0), (12, 41.0)):
        now = at
        show(done, 48)
    assert said() == ["gpuyard: simulating: 1 of 48; Ctrl-C stops", "gpuyard: simulating: 12 of 48, 36s left; Ctrl-C stops"]
