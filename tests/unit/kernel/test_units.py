from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given, strategies as st

from holdfast.errors import UsageError
from holdfast.kernel.units import DURATION_MS_MAX, milliseconds


@pytest.mark.parametrize(
    ("duration", "ms"),
    [
        (0, 0),
        (1, 1_000),
        (0.5, 500),
        (0.0001, 1),  # never cut short
        ("1500ms", 1_500),
        ("30s", 30_000),
        ("5m", 300_000),
        ("2h", 7_200_000),
        ("3d", 259_200_000),
        ("1.5s", 1_500),
        ("0.2ms", 1),
        (" 7 s ", 7_000),
        (timedelta(minutes=2), 120_000),
        (timedelta(microseconds=1), 1),
        (timedelta(0), 0),
        ("365000d", DURATION_MS_MAX),
    ],
)
def test_a_duration_in_milliseconds(duration, ms):
    assert milliseconds(duration) == ms


@pytest.mark.parametrize(
    "text", ["", "s", "5", "5 minutes", "-5s", "1e3s", "1_000s", "5S", "5s5s", "five s", "0x10s", "1..5s"]
)
def test_text_that_is_no_duration_is_refused_and_the_forms_are_named(text):
    with pytest.raises(UsageError, match="is not a duration") as caught:
        milliseconds(text)
    assert "'30s'" in caught.value.hint


@pytest.mark.parametrize("value", [None, True, False, [], b"5s", Decimal(5), 1j])
def test_other_types_are_refused(value):
    with pytest.raises(UsageError, match="is not a duration"):
        milliseconds(value)


@pytest.mark.parametrize(
    "value",
    [
        -1,
        -0.001,
        float("nan"),
        float("inf"),
        float("-inf"),
        1e308,
        10**400,
        "365001d",
        "9" * 400 + "s",
        timedelta(days=-1),
        timedelta.max,
    ],
)
def test_a_duration_out_of_range_is_refused(value):
    with pytest.raises(UsageError, match="out of range"):
        milliseconds(value)


@given(st.integers(0, 10**9))
def test_whole_milliseconds_stay_what_they_are_in_every_form(ms):
    forms = (f"{ms}ms", f"{ms / 1000}s", timedelta(milliseconds=ms), ms / 1000)
    assert {milliseconds(form) for form in forms} == {ms}


@given(st.integers(0, 10_000), st.sampled_from([("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)]))
def test_text_multiplies_by_its_unit(amount, unit):
    name, ms = unit
    assert milliseconds(f"{amount}{name}") == amount * ms


@given(st.floats(0, 1e9))
def test_a_wait_is_never_cut_short_and_at_most_a_millisecond_longer(seconds):
    """Float noise apart: a thousandth of a millisecond."""
    ms = milliseconds(seconds)
    assert isinstance(ms, int)
    assert ms >= seconds * 1000 - 1e-3
    assert ms <= seconds * 1000 + 1
