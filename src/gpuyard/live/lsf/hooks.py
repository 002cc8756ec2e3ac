"""Hooks of LSF for place mode (esub: jobs get a begin time and a mark) and for the plugin (epsub: jobs get a tag)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from gpuyard.errors import UsageError
from gpuyard.live.deployment.placing import MARK

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_PATH = re.compile(r"/[A-Za-z0-9_./-]{1,200}")

ESUB = """\
#!/bin/sh
# esub.gpuyard, for gpuyard's place mode: put it into $LSF_SERVERDIR, executable, with LSB_ESUB_METHOD="gpuyard" in lsf.conf.
# A job of the queues below gets a begin time DEADMAN seconds ahead and a mark. gpuyard starts it before, or puts the time off while it
# lives. If gpuyard is dead, the time comes, and LSF starts the job by itself. Whatever goes wrong here, the job is submitted as usual.
# Left alone: arrays, and jobs with a begin time, hosts or a description of their own. Removing this file, or creating STOP, ends all of it.

DEADMAN=%(deadman)d
QUEUES=" %(queues)s "
DEFAULT="%(default)s"   # the queue of a job that names none
ADMINS=" %(admins)s "
GUARD=%(guard)s         # yes: only ADMINS may bmod the begin time, hosts and description of any job
HOLD=%(hold)s          # yes: jobs are held instead, and stay so if gpuyard dies
STOP="%(stop)s"

[ -n "$STOP" ] && [ -e "$STOP" ] && exit 0
[ -r "$LSB_SUB_PARM_FILE" ] || exit 0
begin= hosts= text= name= queue= change=
while IFS= read -r line; do
    value=${line#*=} value=${value#'"'} value=${value%%'"'}
    case "$line" in
        LSB_SUB_BEGIN_TIME=*) begin=$value ;;
        LSB_SUB_HOSTS=*) hosts=$value ;;
        LSB_SUB_JOB_DESCRIPTION=*) text=$value ;;
        LSB_SUB_JOB_NAME=*) name=$value ;;
        LSB_SUB_QUEUE=*) queue=$value ;;
        LSB_SUB_MODIFY=*) change=$value ;;
    esac
done < "$LSB_SUB_PARM_FILE"
if [ -n "$change" ]; then
    [ "$GUARD" = yes ] || exit 0
    case "$ADMINS" in *" $(id -un) "*) exit 0 ;; esac
    [ -z "$begin$hosts$text" ] && exit 0
    echo "begin time, hosts and description of a job are set by gpuyard here" >&2
    exit "${LSB_SUB_ABORT_VALUE:-97}"
fi
case "$QUEUES" in *" ${queue:-$DEFAULT} "*) ;; *) exit 0 ;; esac
case "$name" in *"["*) exit 0 ;; esac
[ -z "$begin$hosts$text" ] || exit 0
if [ "$HOLD" = yes ]; then
    { echo 'LSB_SUB_HOLD="Y"'; echo 'LSB_SUB_JOB_DESCRIPTION="%(mark)s held"'; } >> "$LSB_SUB_MODIFY_FILE"
    exit 0
fi
now=$(date +%%s) || exit 0
begin=$(( (now + DEADMAN + 59) / 60 * 60 ))
{ echo "LSB_SUB_BEGIN_TIME=$begin"; echo "LSB_SUB_JOB_DESCRIPTION=\\"%(mark)s b=$begin\\""; } >> "$LSB_SUB_MODIFY_FILE"
exit 0
"""
EPSUB = """\
#!/bin/sh
# epsub.gpuyard, for the plugin schmod_gpuyard: put it into $LSF_SERVERDIR, executable, with LSB_ESUB_METHOD="gpuyard" in lsf.conf.
# A job of the queues below is tagged with its number, by which the plugin knows it. Arrays are left alone: all their tasks share one tag.

QUEUES=" %(queues)s "
STOP="%(stop)s"

[ -n "$STOP" ] && [ -e "$STOP" ] && exit 0
case "$QUEUES" in *" $LSB_SUB_JOB_QUEUE "*) ;; *) exit 0 ;; esac
case "$LSB_SUB_JOB_ID" in ''|*[!0-9]*) exit 0 ;; esac
grep -q '^LSB_SUB_JOB_NAME=.*\\[' "$LSB_SUB_PARM_FILE" 2>/dev/null && exit 0
bmod -extsched "GPUYARD[$LSB_SUB_JOB_ID]" "$LSB_SUB_JOB_ID" >/dev/null 2>&1
exit 0
"""


def esub(
    queues: Sequence[str], *, deadman: float, admins: Sequence[str] = (), default: str = "", stop: Path | None = None, guard: bool = True,
    hold: bool = False,
) -> str:  # fmt: skip
    """Return the hook at submission: a shell script that runs no text of users."""
    values = {
        "deadman": int(deadman), "queues": _names("queue", queues), "default": _names("queue", [default] if default else []),
        "admins": _names("user", ["root", *admins]), "guard": _flag(guard), "hold": _flag(hold), "stop": _stop(stop), "mark": MARK,
    }  # fmt: skip
    return ESUB % values


def epsub(queues: Sequence[str], *, stop: Path | None = None) -> str:
    """Return the hook after submission."""
    return EPSUB % {"queues": _names("queue", queues), "stop": _stop(stop)}


def _names(what: str, names: Sequence[str]) -> str:
    for name in names:
        if not _NAME.fullmatch(name):
            raise UsageError(f"{what} {name[:70]!r}: is not a name")
    return " ".join(names)


def _flag(value: bool) -> str:
    return "yes" if value else "no"


def _stop(path: Path | None) -> str:
    if path is not None and not _PATH.fullmatch(str(path)):
        raise UsageError(f"{path}: is not a whole path without blanks")
    return "" if path is None else str(path)
