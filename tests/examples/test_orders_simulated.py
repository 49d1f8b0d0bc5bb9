"""The tests that an example has, as they are."""

from __future__ import annotations

from examples.test_orders import (
    test_a_bank_that_is_busy_is_asked_again_under_the_same_key as test_busy,
    test_a_card_that_is_declined_is_tried_once as test_declined,
    test_an_order_that_is_started_twice_is_charged_once as test_twice,
    test_whatever_dies_while_an_order_is_paid_it_is_paid_under_one_key_and_shipped_once as test_deaths,
)

__all__ = ["test_busy", "test_deaths", "test_declined", "test_twice"]
