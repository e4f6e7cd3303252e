"""The meter of the loop's stalls."""

import pytest

from antiphon.engine.work.stalls import HOUR_SECONDS, SPAN_SECONDS, StallMeter


def test_a_quiet_loop_has_no_stalls() -> None:
    assert StallMeter().last_hour().longest_ms == 0
    meter = StallMeter()
    for tick in range(100):
        meter.note(-0.001, tick * 0.1)
    assert (meter.last_hour().p999_ms, meter.last_hour().longest_ms) == (0, 0)


def test_one_tick_in_a_thousand_does_not_count_for_the_share() -> None:
    meter = StallMeter()
    for tick in range(999):
        meter.note(0.004, tick * 0.1)
    meter.note(0.5, 100.0)
    seen = meter.last_hour()
    assert 4 <= seen.p999_ms <= 5 and seen.longest_ms == 500
    meter.note(0.3, 100.1)
    assert 300 <= meter.last_hour().p999_ms <= 360


@pytest.mark.parametrize("late", [0.02, 90.0])
def test_a_stall_is_forgotten_after_an_hour(late: float) -> None:
    meter = StallMeter()
    meter.note(late, 0.0)
    meter.note(0.001, HOUR_SECONDS)
    assert meter.last_hour().longest_ms == late * 1000
    assert meter.last_hour().p999_ms == late * 1000
    meter.note(0.001, HOUR_SECONDS + SPAN_SECONDS)
    assert meter.last_hour().longest_ms == 1
