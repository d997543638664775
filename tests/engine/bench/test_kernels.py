"""The table of kernels comes from the device's lines of a profile."""

from collections.abc import Sequence

from jax.profiler import ProfileData

from ninfer.engine.bench.kernels import kernel_table

METADATA = """
  event_metadata {{ key: 1 value {{ id: 1 name: "project_3" }} }}
  event_metadata {{ key: 2 value {{ id: 2 name: "gdn_step__2" }} }}
  event_metadata {{ key: 3 value {{ id: 3 name: "project.12_1" }} }}
  stat_metadata {{ key: 1 value {{ id: 1 name: "hlo_op" }} }}
""".format()


def plane(name: str, line: str, *events: tuple[int, int], stat: str = "", starts_us: Sequence[int] = ()) -> str:
    """A plane with one line of (kernel, microseconds), one after the other or from `starts_us`."""
    listed, clock_us = "", 0
    for index, (kernel, us) in enumerate(events):
        start_us = starts_us[index] if starts_us else clock_us
        times = f"offset_ps: {start_us}000000 duration_ps: {us}000000"
        listed += f"events {{ metadata_id: {kernel} {times} {stat} }} "
        clock_us += us
    return f'planes {{ name: "{name}" lines {{ name: "{line}" {listed} }} {METADATA} }}'


def test_the_lines_of_a_device_count_and_nothing_else() -> None:
    """Counters in names fall away; lines that sum up others, and the host's planes, are left out."""
    profile = ProfileData.from_text_proto(
        plane("/device:GPU:0", "Stream #13(Compute)", (1, 30), (2, 10), (3, 30), (2, 10), (1, 20))
        + plane("/device:GPU:0", "XLA Ops", (2, 500))
        + plane("/host:CPU", "python", (2, 900), stat='stats { metadata_id: 1 str_value: "x" }')
    )
    table = kernel_table("decode", profile, steps=2)
    assert [(row.name, row.calls, row.step_us) for row in table.rows] == [
        ("project", 1.5, 40.0),
        ("gdn_step__2", 1.0, 10.0),
    ]
    assert [row.share for row in table.rows] == [0.8, 0.2]
    assert (table.calls, table.step_us) == (2.5, 50.0)


def test_without_a_device_plane_the_operations_of_xla_stand_in() -> None:
    profile = ProfileData.from_text_proto(
        plane("/host:CPU", "tf_XLAEigen", (2, 4), stat='stats { metadata_id: 1 str_value: "gdn_step" }')
        + plane("/host:CPU", "python", (1, 900))
    )
    assert [(row.name, row.step_us) for row in kernel_table("decode", profile, steps=1).rows] == [("gdn_step__2", 4.0)]


def test_an_empty_profile_is_an_empty_table() -> None:
    assert kernel_table("decode", ProfileData.from_text_proto('planes { name: "/device:GPU:0" }'), steps=1).rows == ()


def test_a_c_function_is_called_by_its_own_name() -> None:
    profile = ProfileData.from_text_proto(
        plane("/device:GPU:0", "Stream #1", (1, 5)).replace(
            "project_3", "void cub::_V_3::sort::OneSweep<a::b<int, 1>>(c::d*)"
        )
    )
    assert [row.name for row in kernel_table("decode", profile, steps=1).rows] == ["OneSweep"]


def test_time_that_two_share_counts_once() -> None:
    """The second starts early and waits; the third lies within it; the fourth stands alone."""
    line = plane("/device:GPU:0", "Stream #1", (1, 10), (2, 20), (3, 4), (2, 5), starts_us=(0, 2, 12, 40))
    table = kernel_table("decode", ProfileData.from_text_proto(line), steps=1)
    assert {row.name: row.step_us for row in table.rows} == {"project": 14.0, "gdn_step__2": 11.0}
