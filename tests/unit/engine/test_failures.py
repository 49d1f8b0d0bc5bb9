from __future__ import annotations

from collections.abc import Callable
from typing import Self

import msgspec
import pytest

from holdfast import errors
from holdfast.engine.failures import (
    DEPTH_MAX,
    DETAILS_MAX,
    MEMBERS_MAX,
    described,
    rebuilt,
    text_of,
    worded,
)
from holdfast.errors import (
    EffectFailed,
    HoldfastError,
    InputMismatch,
    NotAllowedNow,
    PayloadTooLarge,
    Permanent,
    RetryAfter,
    RunCancelled,
    RunFailed,
    TimedOut,
    UnknownWorkflow,
)
from holdfast.kernel.journal import Failure
from tests.odd_exceptions import ODD, NoWords
from tests.unit.engine.driving import CODEC


class Declined(Exception):
    """Takes one thing and passes on another, as many do."""

    def __init__(self, code: int) -> None:
        super().__init__(f"declined with code {code}")
        self.code = code


class OutOfStock(LookupError):
    def __init__(self, item: str, *, left: int) -> None:
        super().__init__(item, left)
        self.item = item
        self.left = left

    def __str__(self) -> str:
        return f"only {self.left} of {self.item} left"


class Plain(Exception):
    pass


class Shop:
    class Closed(Exception):
        pass


class NoArguments(Exception):
    def __init__(self) -> None:
        super().__init__("it has its own words")


class Unwilling(Exception):
    def __new__(cls, *args: object) -> Self:
        if args != ("the word",):
            raise TypeError("cannot be made")
        return super().__new__(cls, *args)


def stored(error: BaseException) -> Failure:
    """`error` as data, once through the journal's own encoding."""
    return msgspec.json.decode(msgspec.json.encode(described(error, CODEC)), type=Failure)


def again(error: BaseException) -> Exception:
    return rebuilt(stored(error), CODEC)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("boom"),
        ValueError(),
        KeyError("card"),
        TypeError("a", 2, None),
        ZeroDivisionError("division by zero"),
        TimeoutError("late"),
        ConnectionResetError(104, "reset by peer"),
        FileNotFoundError(2, "No such file", "/etc/none"),
        Plain("a"),
        Plain("a", {"b": [1]}),
        Shop.Closed("until monday"),
        Declined(51),
        OutOfStock("lamp", left=2),
        NoArguments(),
        Permanent("no"),
        RetryAfter(7, "busy"),
        RetryAfter(7),
        HoldfastError("what happened", hint="do this"),
        NotAllowedNow("run r-1 is running", hint="Wait."),
        TimedOut("late", hint="Ask again."),
        RunCancelled("r-1"),
        RunFailed("r-1", "ValueError", "boom"),
        EffectFailed("shop.Declined", "declined"),
        UnknownWorkflow("shop.checkout", ("shop.pay",)),
        PayloadTooLarge("the input", 20, 10),
        InputMismatch("shop.checkout", "k", "r-1"),
    ],
    ids=repr,
)
def test_an_exception_is_rebuilt_as_what_it_was(error):
    """`except CardDeclined as error: error.code` works in the workflow, on every replay."""
    rebuilt_error = again(error)
    assert type(rebuilt_error) is type(error)
    assert str(rebuilt_error) == str(error)
    assert vars(rebuilt_error) == vars(error)


@pytest.mark.parametrize(
    "cls", [cls for cls in vars(errors).values() if isinstance(cls, type)], ids=lambda c: c.__name__
)
def test_every_error_of_ours_survives_the_journal(cls):
    if not issubclass(cls, Exception):
        return
    tries = [("m",), ("m", "n", "o"), ("m", 1, 2), ("m", "n"), (1.0,)]
    for arguments in tries:
        try:
            error = cls(*arguments)
        except Exception:
            continue
        assert (type(again(error)), str(again(error))) == (cls, str(error))


def test_an_exception_of_an_unknown_class_is_named():
    failure = Failure("acme.payments.CardDeclined", "card declined")
    error = rebuilt(failure, CODEC)
    assert isinstance(error, EffectFailed)
    assert (error.error_type, error.error_message) == ("acme.payments.CardDeclined", "card declined")


def test_a_class_that_is_no_longer_there_or_is_no_exception_is_not_called():
    class Local(Exception):
        pass

    assert isinstance(again(Local("x")), EffectFailed)
    for name in ("builtins.print", "os.system", "int", "os", "", "holdfast.errors", "nothing", "BaseException"):
        assert isinstance(rebuilt(Failure(name, "m"), CODEC), EffectFailed)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_what_is_no_ordinary_exception_comes_back_as_one(error):
    """It must never stop the worker that reads it back."""
    rebuilt_error = again(error)
    assert isinstance(rebuilt_error, EffectFailed)
    assert rebuilt_error.error_type == type(error).__name__


def test_what_an_exception_said_is_never_lost():
    """This one cannot be made again with the same words: bytes are no JSON."""
    error = again(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"))
    assert isinstance(error, UnicodeDecodeError | EffectFailed)
    said = [str(error), *getattr(error, "__notes__", ())]
    assert any("can't decode byte 0xff in position 0: invalid start byte" in each for each in said)


def test_arguments_that_cannot_be_stored_leave_the_message():
    error = again(Plain(object(), "a"))
    assert type(error) is Plain
    assert "object object at" in str(error)
    too_large = again(ValueError("x" * 20_000_000))
    assert type(too_large) is ValueError


def test_attributes_that_cannot_be_stored_are_left_out():
    error = Plain("a")
    error.connection = object()  # pyright: ignore[reportAttributeAccessIssue]
    assert str(again(error)) == "a"


def test_text_that_is_no_unicode_can_be_stored():
    failure = stored(ValueError("file \udcff is bad"))
    assert "udcff" in failure.message
    assert "udcff" in str(rebuilt(failure, CODEC))


def test_a_class_that_cannot_be_made_is_named():
    error = again(Unwilling("the word"))
    assert type(error) is Unwilling
    failure = msgspec.structs.replace(stored(Unwilling("the word")), args=msgspec.Raw(b'["another"]'))
    assert isinstance(rebuilt(failure, CODEC), EffectFailed)


# -- groups


def test_a_group_is_rebuilt_with_its_members():
    """Whatever a TaskGroup raises."""
    group = ExceptionGroup("unhandled errors", [Declined(51), ExceptionGroup("inner", [KeyError("k")])])
    error = again(group)
    assert isinstance(error, ExceptionGroup)
    assert error.message == "unhandled errors"
    declined, inner = error.exceptions
    assert isinstance(declined, Declined)
    assert declined.code == 51
    assert isinstance(inner, ExceptionGroup)
    assert isinstance(inner.exceptions[0], KeyError)


def test_a_group_of_what_is_no_exception_is_still_an_ordinary_exception():
    error = again(BaseExceptionGroup("g", [KeyboardInterrupt(), ValueError("x")]))
    assert isinstance(error, ExceptionGroup)
    assert [type(member) for member in error.exceptions] == [EffectFailed, ValueError]


# -- where it came from


def test_the_line_that_raised_is_kept():
    try:
        raise Plain("a")
    except Plain as caught:
        failure = described(caught, CODEC)
    assert failure.line.startswith("test_failures.py:")
    assert described(Plain("never raised"), CODEC).line == ""


def test_the_step_is_noted_on_the_exception():
    error = rebuilt(Failure("ValueError", "boom", line="shop.py:7"), CODEC, step="0/charge#2")
    assert error.__notes__ == ["raised by step 0/charge#2 at shop.py:7"]
    assert described(error, CODEC).step == "0/charge#2"


def _raised_from(cause: BaseException) -> Exception:
    try:
        raise Plain("wrapped") from cause
    except Plain as error:
        return error


def _raised_while(context: Exception) -> Exception:
    try:
        try:
            raise context
        except Exception:
            raise Plain("instead")  # noqa: B904
    except Plain as error:
        return error


@pytest.mark.parametrize(
    "wrap",
    [
        lambda error: error,
        _raised_from,
        _raised_while,
        lambda error: ExceptionGroup("g", [KeyError("other"), error]),
        lambda error: _raised_from(ExceptionGroup("g", [_raised_from(error)])),
    ],
)
def test_the_step_is_found_through_whatever_the_code_made_of_it(wrap):
    """So that a retry knows which step to try again."""
    error = rebuilt(Failure("ValueError", "boom"), CODEC, step="charge#1")
    assert described(wrap(error), CODEC).step == "charge#1"


def test_an_exception_of_the_code_itself_has_no_step():
    error = Plain("own")
    error.__cause__ = Plain("of its own")
    error.__cause__.__cause__ = error  # a circle ends too
    assert described(error, CODEC).step == ""


def test_rebuilding_twice_gives_two_exceptions():
    failure = stored(Plain("a"))
    assert rebuilt(failure, CODEC) is not rebuilt(failure, CODEC)


def test_a_failure_rebuilt_and_described_again_is_the_same():
    failure = stored(Declined(51))
    twice = stored(rebuilt(failure, CODEC))
    assert (twice.type, twice.message, twice.args, twice.state) == (
        failure.type,
        failure.message,
        failure.args,
        failure.state,
    )


# -- odd ones


def _caught(raising: Callable[[], object]) -> BaseException:
    try:
        raising()
    except BaseException as error:
        return error
    raise AssertionError


@pytest.mark.parametrize("name", ODD)
def test_describing_and_rebuilding_an_odd_exception_never_fails(name):
    """What is recorded can be read, rebuilt, said and recorded again, and gives the same each time."""
    failure = stored(_caught(ODD[name]))
    assert failure.type
    assert len(msgspec.json.encode(failure)) < 2_000_000
    error = rebuilt(failure, CODEC, step="charge#1")
    assert isinstance(error, Exception)
    assert not isinstance(error, StopIteration)
    assert isinstance(str(error), str)
    twice = described(error, CODEC)
    assert twice.step == "charge#1"
    third = described(rebuilt(failure, CODEC, step="charge#1"), CODEC)
    assert msgspec.json.encode(twice) == msgspec.json.encode(third)
    assert text_of(_caught(ODD[name])) + worded(_caught(ODD[name]))


def test_a_deep_group_is_cut_and_says_so():
    failure, depth = stored(_caught(ODD["a 900-deep group"])), 0
    while failure.members:
        [failure] = failure.members
        depth += 1
    assert depth == DEPTH_MAX + 1
    assert "too deep" in failure.message


def test_a_wide_group_is_cut_and_says_how_many_are_missing():
    failure = stored(_caught(ODD["a group of 5,000"]))
    assert len(failure.members) == MEMBERS_MAX + 1
    assert "4000 more" in failure.members[-1].message
    assert str(rebuilt(failure, CODEC)) == "wide (1001 sub-exceptions)"


def test_the_members_of_a_group_share_the_room_for_their_details():
    group = ExceptionGroup("large", [ValueError("x" * 60_000) for _ in range(100)])
    failure = stored(group)
    assert len(failure.members) == 100
    assert len(msgspec.json.encode(failure)) < 2 * DETAILS_MAX


def test_an_exception_whose_str_fails_is_named_and_says_so():
    failure = stored(NoWords())
    assert failure.type == "tests.odd_exceptions.NoWords"
    assert "its __str__ failed" in failure.message


def test_what_lies_too_deep_in_an_argument_is_not_stored():
    nested: list[object] = []
    for _ in range(DEPTH_MAX - 2):
        nested = [nested]
    assert again(Plain(nested)).args == (nested,)
    assert stored(Plain([[nested]])).args is msgspec.UNSET
    assert again(Plain("[" * 90 + '\\"' * 3)).args == ("[" * 90 + '\\"' * 3,)
