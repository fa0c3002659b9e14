"""CPUs at one lock: against arithmetic where there is some, and against a known solution."""

import pytest

from analysis.explain.scaling import lock_throughput


def mean_value_analysis(cpus: int, apart: float, held: float) -> float:
    """Machine repairman, exponential times: Jain (1991), chapter 34."""
    waiting = throughput = 0.0
    for customers in range(1, cpus + 1):
        response = held * (1 + waiting)
        throughput = customers / (apart + response)
        waiting = throughput * response
    return throughput


@pytest.mark.parametrize("cpus", [1, 2, 7, 16, 64])
@pytest.mark.parametrize("held", [0.1, 1.0, 30.0])
def test_without_a_handover_it_is_the_machine_repairman(cpus: int, held: float) -> None:
    expected = mean_value_analysis(cpus, 20.0, held)
    assert lock_throughput(cpus, 20.0, held, 0.0) == pytest.approx(expected, rel=1e-9)


def test_one_cpu_waits_for_nobody_and_hands_over_to_nobody() -> None:
    assert lock_throughput(1, 20.0, 5.0, 100.0) == pytest.approx(1 / 25)


def test_two_cpus_with_a_handover_are_three_states() -> None:
    """At the lock are 0, 1 or 2 of them: solved by hand for apart 4, held 2, handover 1."""
    # Rates: 2/4 in, 1/2 out; 1/4 in, 1/3 out.  Weights 1, 1, 3/4.
    assert lock_throughput(2, 4.0, 2.0, 1.0) == pytest.approx((1 / 2 + 0.75 / 3) / 2.75)


def test_a_full_lock_gives_the_reciprocal_of_its_time() -> None:
    assert lock_throughput(5000, 20.0, 5.0, 1.0) == pytest.approx(1 / 6)
    assert lock_throughput(8, 0.0, 5.0, 1.0) == pytest.approx(1 / 6)
    assert lock_throughput(1, 0.0, 5.0, 1.0) == pytest.approx(1 / 5)


@pytest.mark.parametrize(
    "times", [(0, 1.0, 1.0, 0.0), (2, -1.0, 1.0, 0.0), (2, 1.0, 0.0, 0.0), (2, 1.0, 1.0, -1.0)]
)
def test_what_is_no_queue_is_refused(times: tuple[int, float, float, float]) -> None:
    with pytest.raises(ValueError, match="no queue"):
        lock_throughput(*times)
