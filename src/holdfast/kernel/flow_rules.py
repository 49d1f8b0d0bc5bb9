"""Flow rules: what a workflow declares about when and how its runs go, checked when its module is imported.

    rule        a start                                                  see
    ──────────  ───────────────────────────────────────────────────────  ────────────
    throttle    is late, so that no more begin than a rate says          `throttles`
    fair        takes turns with others: no share keeps another waiting  `fairness`
    debounce    gives its arguments to the run that has not begun        `debounces`
    batch       is an item, and goes into a run with others              `batches`

Rules
- throttle and fair go with each other, and with debounce. A batch goes with a throttle of all its runs, and with
  nothing else: its items are no runs, and it has its key and its order by itself.
- A debounce has an order of its own, so it goes with no lane.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from holdfast.errors import UsageError
from holdfast.kernel import batches, debounces, fairness, throttles
from holdfast.kernel.batches import Batch, Batching
from holdfast.kernel.debounces import Debounce, Debouncing
from holdfast.kernel.keys import Template
from holdfast.kernel.rates import Rate
from holdfast.kernel.throttles import Throttle


class RuleOptions(Struct, frozen=True, kw_only=True, gc=False):
    """The flow rules of a workflow, as its author has written them."""

    throttle: Rate | None = None
    fair: str | None = None
    debounce: Debounce | None = None
    batch: Batch | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """Each rule in words."""
        found: list[str] = []
        if (rate := self.throttle) is not None:
            burst = f", {rate.burst:,} of them at once after a rest" if rate.burst and rate.burst > 1 else ""
            by = f", for each {rate.by}" if rate.by else ""
            cost = f", counted by {rate.cost}" if rate.cost else ""
            found.append(f"throttle: {rate.count:,} in {rate.per}{burst}{by}{cost}")
        if self.fair is not None:
            found.append(f"fair: {self.fair} take turns")
        if (debounce := self.debounce) is not None:
            at_most = "" if debounce.at_most is None else f", at most {debounce.at_most}"
            found.append(f"debounce: until it is quiet for {debounce.quiet}{at_most}")
        if (batch := self.batch) is not None:
            by = f", for each {batch.by}" if batch.by else ""
            found.append(f"batch: {batch.size:,} items, or what has come in {batch.wait}{by}")
        return tuple(found)


class FlowRules(Struct, frozen=True, gc=False):
    """The flow rules of a workflow, ready to be applied to a start."""

    throttle: Throttle | None = None
    fair: Template | None = None
    debounce: Debouncing | None = None
    batch: Batching | None = None


class Subject(Struct, frozen=True, kw_only=True, gc=False):
    """The workflow that declares them: what it is called, and what else it declares."""

    owner: str
    parameters: frozenset[str]
    has_key: bool = False
    has_lane: bool = False
    item_fields: frozenset[str] | None = None  # of the items of a batch, if they are known


NO_RULES = FlowRules()
NO_OPTIONS = RuleOptions()


def declared(options: RuleOptions, subject: Subject) -> FlowRules:
    """The rules that the options say, or a `UsageError`."""
    if options == NO_OPTIONS:
        return NO_RULES
    _check_together(options, subject)
    parameters, owner = subject.parameters, subject.owner
    throttle, fair, debounce, batch = options.throttle, options.fair, options.debounce, options.batch
    return FlowRules(
        None if throttle is None else throttles.declared(throttle, parameters=parameters, owner=owner),
        None if fair is None else fairness.declared(fair, parameters=parameters, owner=owner),
        None if debounce is None else debounces.declared(debounce, has_key=subject.has_key, owner=owner),
        None
        if batch is None
        else batches.declared(batch, parameters=parameters, fields=subject.item_fields, owner=owner),
    )


def check_start(rules: FlowRules, lane: str | None, *, owner: str) -> None:
    """Raises `UsageError` if a start names a lane for a run that has an order already."""
    if rules.debounce is not None and lane is not None:
        raise UsageError(
            f"{owner} has debounce=, and was started with lane={lane!r}",
            hint="Runs under a debounced key go one after the other without a lane: leave lane= out.",
        )


def _check_together(options: RuleOptions, subject: Subject) -> None:
    """Raises `UsageError` if the workflow declares what does not go together."""
    if options.debounce is not None and subject.has_lane:
        raise UsageError(
            f"{subject.owner} has debounce= and lane=",
            hint="Runs under a debounced key go one after the other without a lane: leave lane= out.",
        )
    if options.batch is None:
        return
    beside: Mapping[str, bool] = {
        "key": subject.has_key,
        "lane": subject.has_lane,
        "fair": options.fair is not None,
        "debounce": options.debounce is not None,
    }
    for name, is_there in beside.items():
        if is_there:
            raise UsageError(
                f"{subject.owner} has batch= and {name}=",
                hint=f"A batch has a key and an order of its own, and its items are no runs: leave {name}= out.",
            )
    rate = options.throttle
    if isinstance(rate, Rate) and (rate.by or rate.cost):
        raise UsageError(
            f"{subject.owner} has batch= and a throttle with {'by' if rate.by else 'cost'}=",
            hint="A throttle beside batch= counts batches: leave by= and cost= out.",
        )
