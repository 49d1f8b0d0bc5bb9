"""What tests of workflows need, ours and yours: simulations in virtual time, ledgers, events to wait on, stores.

Also the replay of exported journals. It needs no test framework; of Holdfast, the command line and the lab alone import
it. A name is imported when it is first asked for: `holdfast.testing.pytest_plugin` is loaded into every run of pytest.
"""

TYPE_CHECKING = False  # type checkers take it for true, as that of `typing`
if TYPE_CHECKING:
    from holdfast.testing.effect_ledger import AttemptEnd, EffectLedger, LedgerCall
    from holdfast.testing.events import EventRecorder
    from holdfast.testing.journals import replay, replay_exported
    from holdfast.testing.ledger import Ledger, Line
    from holdfast.testing.proofs import Delivery, FakeWorld, WorkflowProof, prove
    from holdfast.testing.simulated import Fake, Simulated, SimulatedOptions
    from holdfast.testing.simulation.calendar import NotSimulated
    from holdfast.testing.simulation.passing_time import SimulationStuck
    from holdfast.testing.simulation.performing import FaultPlace
    from holdfast.testing.stores import temporary_holdfast, temporary_store
    from holdfast.testing.stubs import ReplyLost, StubFailure
    from holdfast.testing.waiting import PATIENCE_SECONDS, eventually

__all__ = [
    "PATIENCE_SECONDS",
    "AttemptEnd",
    "Delivery",
    "EffectLedger",
    "EventRecorder",
    "Fake",
    "FakeWorld",
    "FaultPlace",
    "Ledger",
    "LedgerCall",
    "Line",
    "NotSimulated",
    "ReplyLost",
    "Simulated",
    "SimulatedOptions",
    "SimulationStuck",
    "StubFailure",
    "WorkflowProof",
    "eventually",
    "prove",
    "replay",
    "replay_exported",
    "temporary_holdfast",
    "temporary_store",
]

_HOMES = {
    "effect_ledger": "AttemptEnd EffectLedger LedgerCall",
    "events": "EventRecorder",
    "journals": "replay replay_exported",
    "ledger": "Ledger Line",
    "proofs": "Delivery FakeWorld WorkflowProof prove",
    "simulated": "Fake Simulated SimulatedOptions",
    "simulation.calendar": "NotSimulated",
    "simulation.passing_time": "SimulationStuck",
    "simulation.performing": "FaultPlace",
    "stores": "temporary_holdfast temporary_store",
    "stubs": "ReplyLost StubFailure",
    "waiting": "PATIENCE_SECONDS eventually",
}

if not TYPE_CHECKING:  # a type checker that saw `__getattr__` would let every misspelt name pass

    def __getattr__(name: str) -> object:
        """The name, imported from its module."""
        from importlib import import_module  # noqa: PLC0415 - this module imports nothing by itself

        for home, names in _HOMES.items():
            if name in names.split():
                globals()[name] = found = getattr(import_module(f"holdfast.testing.{home}"), name)
                return found
        raise AttributeError(f"module 'holdfast.testing' has no attribute {name!r}", name=name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
