"""The waiting helper: it returns the fact's value, and names a fact that did not come."""

import threading

import pytest

from tests.support.wait import NotInTime, wait_until, wait_until_async


def test_it_returns_the_value_as_soon_as_it_is_true():
    answers = iter([None, 0, "", "here", "too late"])
    assert wait_until(lambda: next(answers)) == "here"


def test_it_sees_a_fact_that_another_thread_makes_true():
    happened = threading.Event()
    thread = threading.Timer(0.05, happened.set)
    thread.start()
    assert wait_until(happened.is_set, 5)
    thread.join()


def test_a_fact_that_does_not_come_is_named_with_its_last_value():
    with pytest.raises(NotInTime, match=r"0\.05 s: the row is there \(last value 0\)"):
        wait_until(lambda: 0, 0.05, about="the row is there")


def test_an_error_inside_the_fact_is_not_swallowed():
    with pytest.raises(ZeroDivisionError):
        wait_until(lambda: 1 / 0)


async def test_the_async_form_takes_both_kinds_of_fact():
    async def later():
        return next(answers)

    answers = iter([0, 7])
    assert await wait_until_async(later) == 7
    assert await wait_until_async(lambda: "plain") == "plain"
    with pytest.raises(NotInTime, match="never"):
        await wait_until_async(lambda: None, 0.02, about="never")
