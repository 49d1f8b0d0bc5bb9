"""Which runs a command means, as options: the filters of a search, the same for looking and for acting."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import Annotated, Any, Concatenate, ParamSpec

import typer
from msgspec import Struct

from holdfast.adapters.machine import SystemClock
from holdfast.cli.arguments import moment_of
from holdfast.cli.completions import workflow_names
from holdfast.cli.session import Session
from holdfast.client import Caller, Runs
from holdfast.errors import UsageError
from holdfast.kernel.runs import Status
from holdfast.kernel.units import utc_of
from holdfast.wire import run_queries
from holdfast.wire.filters import parse_each

P = ParamSpec("P")

WorkflowOption = Annotated[str | None, typer.Option(help="Only of this workflow.", autocompletion=workflow_names)]
StatusOption = Annotated[list[Status] | None, typer.Option(help="Only in this status; may be repeated.")]
AttributeOption = Annotated[
    list[str] | None, typer.Option(help="NAME=VALUE, NAME>=VALUE, NAME<VALUE ...; may be repeated.")
]
KeyPrefixOption = Annotated[str | None, typer.Option(help="Only keys that begin so.")]
InstantOption = Annotated[str | None, typer.Option(help="Instant, or how long ago: 2h.")]
OldestFirstOption = Annotated[bool, typer.Option("--oldest-first", help="In the order of creation.")]
RootsOnlyOption = Annotated[bool, typer.Option("--roots-only", help="Leave out what another run has started.")]
WordsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[WORDS]...",
        help="What is searched for, as in the dashboard: failed, o-1042, workflow:checkout, customer=ada, "
        "created_after:2h. Instead of options.",
        show_default=False,
    ),
]
LimitOption = Annotated[int | None, typer.Option("--limit", "-n", min=1, help="How many at most.")]


class RunFilters(Struct, frozen=True, kw_only=True):
    """What the options of a command say. The annotations are Typer's."""

    workflow: WorkflowOption = None
    status: StatusOption = None
    attribute: AttributeOption = None
    key_prefix: KeyPrefixOption = None
    created_after: InstantOption = None
    created_before: InstantOption = None
    finished_after: InstantOption = None
    finished_before: InstantOption = None
    oldest_first: OldestFirstOption = False
    roots_only: RootsOnlyOption = False
    limit: LimitOption = None

    @property
    def is_set(self) -> bool:
        """Whether they leave anything out."""
        return self != RunFilters(oldest_first=self.oldest_first)

    def check_only_words(self) -> None:
        """Raises `UsageError` if the options say what is searched for, too."""
        allowed = RunFilters(oldest_first=self.oldest_first, roots_only=self.roots_only, limit=self.limit)
        if self != allowed:
            raise UsageError("words and options cannot both say what is searched for", hint="Write all of it as words.")

    def runs_of(self, caller: Caller, words: Sequence[str]) -> Runs[Any]:
        """The search that words mean, for a verb that is applied to all it finds. Raises `UsageError`.

        Nothing is guessed here: a word that may be a misspelt field is refused, and so is the id of a run.
        """
        self.check_only_words()
        query = run_queries.parse_each(words, now=utc_of(SystemClock().wall_ms()))
        if query.id:
            raise UsageError("an id means one run, not many", hint="Name it without bulk, as in: holdfast retry ID")
        if query.misspelt:
            raise UsageError(query.misspelt, hint=f"If keys begin so, write key:{query.lookup}")
        if query.lookup and query.key:
            raise UsageError(f"{query.lookup!r} and the key {query.key!r} cannot both be meant", hint="Write one.")
        return query.by_key.runs(
            caller, roots_only=self.roots_only, newest_first=not self.oldest_first, limit=self.limit
        )

    def runs(self, caller: Caller) -> Runs[Any]:
        """The search that is meant, or a `UsageError`."""
        return caller.runs(
            self.workflow,
            [each.value for each in self.status] if self.status else None,
            attributes=parse_each(self.attribute or ()),
            key_prefix=self.key_prefix,
            created_after=moment_of(self.created_after),
            created_before=moment_of(self.created_before),
            finished_after=moment_of(self.finished_after),
            finished_before=moment_of(self.finished_before),
            newest_first=not self.oldest_first,
            roots_only=self.roots_only,
            limit=self.limit,
        )


Filtered = Callable[Concatenate[Session, RunFilters, P], Coroutine[Any, Any, None]]


def filtered(action: Filtered[P]) -> Callable[..., Coroutine[Any, Any, None]]:
    """A command that has the filters among its options, and gets them as one value."""
    session, _, *own = inspect.signature(action, eval_str=True).parameters.values()
    types = inspect.get_annotations(RunFilters, eval_str=True)
    filters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=types[name])
        for name, default in zip(RunFilters.__struct_fields__, RunFilters.__struct_defaults__, strict=True)
    ]

    @wraps(action)
    async def command(session: Session, **given: Any) -> None:
        meant = RunFilters(**{name: given.pop(name) for name in RunFilters.__struct_fields__})
        await action(session, meant, **given)  # pyright: ignore[reportCallIssue] - Typer has read the signature

    keyword = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
    command.__signature__ = inspect.Signature([session, *keyword, *filters])  # pyright: ignore[reportAttributeAccessIssue] - as inspect reads it
    return command
