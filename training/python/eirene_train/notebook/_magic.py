"""``%%eirene`` and ``%eirene``: what people write, and what is done about it. IPython itself is not imported: it hands its shell over."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import pickle
import shlex
import time
from collections.abc import Callable
from typing import Any, NoReturn

from ._failures import Refused
from ._run import Answers, Following
from ._screen import Screen
from ._session import Session, Wanted

__all__ = ["load", "unload"]

_MAGIC = "eirene"
_ATTRIBUTE = "_eirene_notebook"
_VERBS = """\
%%eirene -n 4        runs the cell on 4 ranks; `%%eirene --help` says more
%eirene push x y     gives all ranks these variables of the notebook's
%eirene pull x       brings rank 0's value into the notebook; with `--rank all`, a list of all ranks' values
%eirene status       what there is
%eirene stop         ends the ranks"""
_MOST_RANKS = 4096


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, and never ends the kernel."""

    def error(self, message: str) -> NoReturn:
        raise Refused(f"{self.prog}: {message}; `{self.prog} --help` says what there is")

    def read(self, words: list[str]) -> argparse.Namespace:
        """What was said, where all of it is understood."""
        options, unknown = self.parse_known_args(words)
        if unknown:
            self.error(f"there is no option `{unknown[0]}`")
        return options

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise _Shown


class _Shown(Exception):
    """Help was shown, and that is all."""


def _cell_parser() -> _Parser:
    parser = _Parser(prog="%%eirene", allow_abbrev=False, description="Runs the cell on several ranks, which keep their variables for the next cell.")
    parser.add_argument("-n", "--ranks", type=_number, metavar="N", help="how many ranks; left out: those of the cell before")
    parser.add_argument("--nodes", metavar="LIST", help="on these hosts, as `eirene-train run` takes them: c[1-4], or all of SLURM's job")
    parser.add_argument("--exclude", metavar="LIST", help="in a session: on its nodes but these, as c2")
    parser.add_argument("--fresh", action="store_true", help="with new ranks, which have no variables")
    parser.add_argument("--all", action="store_true", help="show the value of the last line of every rank, not rank 0's alone")
    parser.add_argument("--timeout", type=_seconds, metavar="SECONDS", help="interrupt the ranks when the cell takes longer")
    parser.add_argument("--no-preflight", action="store_true", help="in a session: start the ranks without trying nodes and links first")
    return parser


def _number(word: str) -> int:
    try:
        number = int(word)
    except ValueError:
        raise Refused(f"%%eirene: `{word}` is no number of ranks") from None
    if not 1 <= number <= _MOST_RANKS:
        raise Refused(f"%%eirene: {number} ranks cannot run a cell; say a number from 1 to {_MOST_RANKS}")
    return number


def _seconds(word: str) -> float:
    try:
        number = float(word)
    except ValueError:
        number = 0.0
    if not 0.0 < number < 1e9:
        raise Refused(f"%%eirene: `{word}` is no number of seconds")
    return number


class Notebook:
    """The magic of one kernel, and its ranks."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._session: Session | None = None
        self._wanted: Wanted | None = None
        self._lost: str | None = None

    def magic(self, line: str, cell: str | None = None) -> None:
        """Runs a cell's code on ranks, and keeps them for the next; `%eirene` alone says what else there is."""
        with contextlib.suppress(_Shown):
            try:
                words = shlex.split(line)
            except ValueError as error:
                raise Refused(f"%eirene: {str(error).lower()} in `{line}`") from None
            if cell is None:
                self._verb(words)
            else:
                self._cell(words, cell)

    def stop(self) -> bool:
        """Ends the ranks, if there are any; whether there were."""
        session, self._session = self._session, None
        if session is not None:
            session.close()
        return session is not None

    # Cells.

    def _cell(self, words: list[str], cell: str) -> None:
        options = _cell_parser().read(words)
        wanted = self._wanted_by(options)
        name = f"<cell {self._shell.execution_count}>"
        # The magic's own line is the cell's first; so lines have the numbers that the notebook shows.
        cell = f"\n{cell}" if cell.endswith("\n") else f"\n{cell}\n"
        _compiles(cell, name)
        session = self._ranks(wanted, options.fresh)
        screen = Screen(self._shell)
        following = Following(session, screen, options.all, options.timeout)
        self._follow(following, lambda: session.request("cell", {"name": name, "all": options.all}, cell.encode()), screen)

    def _wanted_by(self, options: argparse.Namespace) -> Wanted:
        ranks, nodes, exclude = options.ranks, options.nodes, options.exclude
        if ranks is None and self._wanted is not None:
            ranks = self._wanted.ranks
            # Who says where, says all of it.
            if nodes is None and exclude is None:
                nodes, exclude = self._wanted.nodes, self._wanted.exclude
        if ranks is None:
            raise Refused("%%eirene: say on how many ranks the cell is to run: %%eirene -n 4")
        return Wanted(ranks, nodes, exclude, preflight=not options.no_preflight)

    def _ranks(self, wanted: Wanted, fresh: bool) -> Session:
        """The ranks that are there, or new ones."""
        screen = Screen(self._shell)
        session = self._session
        if session is not None and not session.is_whole:
            self._lost = Following(session, screen).bury()
            self._session = session = None
        if session is not None and session.wanted == wanted and not fresh:
            return session
        if session is not None:
            screen.say(f"{_ranks_of(session.wanted)} of before {'is' if session.wanted.ranks == 1 else 'are'} ended, with all variables there")
        elif self._lost:
            screen.say(f"new ranks are started, for those of before are gone: {self._lost}")
        self.stop()
        self._lost = None
        session = Session(wanted)
        try:
            Following(session, screen).until_ready()
        except BaseException:
            session.close()
            raise
        screen.end(session.way or f"{_ranks_of(wanted)} started", always=session.way is not None)
        self._session, self._wanted = session, wanted
        return session

    def _follow(self, following: Following, ask: Callable[[], int], screen: Screen, does: str = "running") -> Answers:
        try:
            answers = following.until_done(ask, does)
        finally:
            if following.lost is not None:
                self._session, self._lost = None, following.why
        if following.lost is not None:
            screen.say(following.lost)
        return answers

    # Verbs.

    def _verb(self, words: list[str]) -> None:
        match words:
            case ["push", *rest]:
                self._push(rest)
            case ["pull", *rest]:
                self._pull(rest)
            case ["status"]:
                print(self._status())
            case ["stop"]:
                print("the ranks have ended" if self.stop() else "there are no ranks")
                self._lost = None
            case [] | ["help" | "-h" | "--help"]:
                print(_VERBS)
            case _:
                raise Refused(f"%eirene: there is no `{' '.join(words)}`; it is push, pull, status or stop, and a cell begins with %%eirene (two %)")

    def _status(self) -> str:
        session = self._session
        if session is None or not session.is_whole:
            return f"no ranks run{f': {self._lost}' if self._lost else ''}; a cell that begins with %%eirene -n 4 starts 4"
        seconds = int(time.monotonic() - session.started)
        return f"{_ranks_of(session.wanted)}, started {seconds // 60} min {seconds % 60} s ago; {session.where()}"

    def _alive(self, verb: str) -> Session:
        if self._session is None or not self._session.is_whole:
            raise Refused(f"%eirene {verb}: no ranks run; a cell that begins with %%eirene -n 4 starts 4")
        return self._session

    def _push(self, words: list[str]) -> None:
        parser = _Parser(prog="%eirene push", description="Gives all ranks variables of the notebook's.")
        parser.add_argument("names", nargs="+", type=_name, metavar="NAME")
        wanted: list[str] = parser.read(words).names
        session = self._alive("push")
        values = []
        for name in wanted:
            if name not in self._shell.user_ns:
                raise Refused(f"%eirene push: there is no `{name}` in the notebook")
            try:
                values.append((name, pickle.dumps(self._shell.user_ns[name])))
            except Exception as error:
                raise Refused(f"%eirene push: `{name}` cannot be pickled: {type(error).__name__}: {error}") from None
        self._ask(session, "push", {}, pickle.dumps(values))

    def _pull(self, words: list[str]) -> None:
        parser = _Parser(prog="%eirene pull", description="Brings values from ranks into the notebook.")
        parser.add_argument("names", nargs="+", type=_name, metavar="NAME")
        parser.add_argument("--rank", default="0", metavar="R|all", help="whose value; `all`: a list of all ranks' values (default: 0)")
        options = parser.read(words)
        session = self._alive("pull")
        size = session.wanted.ranks
        rank = None if options.rank == "all" else int(options.rank) if options.rank.isdecimal() else -1
        if rank is not None and not 0 <= rank < size:
            raise Refused(f"%eirene pull: there is no rank `{options.rank}`; it is 0 to {size - 1}, or all")
        answers = self._ask(session, "pull", {"names": options.names, "rank": rank})
        pulled = {}
        for place, name in enumerate(options.names):
            # What ranks send is made by the person's own programs and is believed as they are: whoever can change it can change them.
            values = [_unpickled(name, pickle.loads(answers[one])[place]) for one in (range(size) if rank is None else [rank])]
            pulled[name] = values if rank is None else values[0]
        self._shell.user_ns.update(pulled)

    def _ask(self, session: Session, kind: str, fields: dict[str, Any], content: bytes = b"") -> Answers:
        screen = Screen(self._shell)

        def ask() -> int:
            try:
                return session.request(kind, fields, content)
            except ValueError as error:
                raise Refused(f"%eirene {kind}: {error}") from None

        return self._follow(Following(session, screen), ask, screen, f"{kind}ing")


def _ranks_of(wanted: Wanted) -> str:
    ranks = "1 rank" if wanted.ranks == 1 else f"{wanted.ranks} ranks"
    nodes = "" if wanted.nodes is None else f" on {wanted.nodes}"
    return f"{ranks}{nodes}" if wanted.exclude is None else f"{ranks}{nodes} without {wanted.exclude}"


def _name(word: str) -> str:
    if not word.isidentifier():
        raise Refused(f"%eirene: `{word}` is no variable's name")
    return word


def _compiles(cell: str, name: str) -> None:
    """Raises a sentence for what is no Python, before anything is started or sent."""
    try:
        compile(cell, name, "exec", dont_inherit=True)
    except SyntaxError as error:
        line = (error.text or "").strip()
        hint = "; shell and magic commands are the notebook's own, not the ranks'" if line[:1] in ("%", "!", "?") else ""
        raise Refused(f"line {error.lineno} of the cell: {error.msg}: `{line}`{hint}") from None
    except ValueError as error:
        raise Refused(f"the cell is no Python: {error}") from None


def _unpickled(name: str, data: bytes) -> Any:
    try:
        return pickle.loads(data)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        raise Refused(f"%eirene pull: `{name}` cannot be made in the notebook: {problem}; what it is made of must be importable here") from None


def load(shell: Any) -> None:
    """Makes the magic known; again does no harm."""
    if getattr(shell, _ATTRIBUTE, None) is not None:
        return
    notebook = Notebook(shell)
    setattr(shell, _ATTRIBUTE, notebook)
    shell.register_magic_function(notebook.magic, magic_kind="line_cell", magic_name=_MAGIC)
    atexit.register(notebook.stop)


def unload(shell: Any) -> None:
    """Forgets the magic and ends the ranks."""
    notebook: Notebook | None = getattr(shell, _ATTRIBUTE, None)
    if notebook is None:
        return
    notebook.stop()
    atexit.unregister(notebook.stop)
    delattr(shell, _ATTRIBUTE)
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop(_MAGIC, None)
