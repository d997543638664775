"""The delta-net step of one row and one value head as PTX: 256 threads, four barriers.

Why not in Triton's own operations: a step is a chain of latencies, and each of its small sums and changes of layout
cost two barriers there, 47 in all. Here a thread knows its place. Warp w holds rows 16 w and on of the state, lane l
columns 4 l to 4 l + 3, in registers between the only read and the only write. Threads 0 to 127 make the query's
channels, 128 to 255 the key's; the lower half then makes the values' channels and finishes a column each. Sums go
through shuffles and one place in shared memory per warp; lengths of query and key are factors at the end, so that
nothing waits for them.

Text only; triton.py passes addresses. Everything is straight-line and predicated: no thread takes a branch. Meaning and
symbols: reference.py. Invariant: nothing depends on the number of rows; roundings are written out, so ptxas fuses
nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import attrs

from kernels_pallas.gdn_step.state import CONV_TAPS, L2_EPSILON

THREADS = 256
WIDTH = 128
"""Rows and columns of a state: key_dim and value_dim."""
_WARPS = THREADS // 32
_ROWS = WIDTH // _WARPS
"""Rows of the state in a warp."""
_LOG2_E, _LN_2 = 1.4426950408889634, 0.6931471805599453

ADDRESSES = ("state", "x", "ab", "a_log", "dt_bias", "projected", "ring", "taps", "gain", "out", "squares")
"""Operands $1 and on: the head's part of state, a's row of `ab`, a_log, dt_bias and out; the row's part of x, projected
and squares (which is only there if x has any); the layer's or slot's first channel of ring, taps and gain."""
VALUES = ("position", "real", "keeps", "channel", "value_channel")
"""Operands behind them, int32: the token's position; 1 for no padding; 1 for who stores the ring's query and key; first
channel of the query and of the values."""

# Places in shared memory, bytes.
_VECTORS = 0
"""float32 [2, 128]: query and key before they are normalised."""
_SUMS = _VECTORS + 2 * WIDTH * 4
"""float32 [8 warps, 4]: squared length of the warp's channels, products a and b, squares of the residual."""
_PARTS = _SUMS + _WARPS * 16
"""float32 [8 warps, 2, 128]: key and query times the warp's rows."""
_MET = _PARTS + _WARPS * 2 * WIDTH * 4
"""float32 [8 warps]: key times query, of the warp's rows."""
_CHANGE = _MET + _WARPS * 4
"""float32 [128]: what the key is multiplied with in the new state."""
_LENGTH = _CHANGE + WIDTH * 4
"""float32 [4 warps]: squares of the output."""
SHARED_BYTES = _LENGTH + 16


@attrs.frozen(kw_only=True)
class Shape:
    """What the text is made for."""

    hidden: int
    """H, a multiple of 8."""
    heads: int
    """Hv, from a row of a to that of b."""
    keys: int
    """From a query's channel to its key's."""
    channels: int
    """C, from one row of the ring to the next and from the first channel to z."""
    squares: int
    """Sums of squares that come with x, a multiple of 4 and at most 1024; 0: x is not normalised."""
    x_type: str
    """"f16" or "bf16"."""
    out_type: str
    """"f16", "bf16" or "f32"."""
    x_scale: float
    x_eps: float
    eps: float


def addresses(shape: Shape) -> tuple[str, ...]:
    """Those of ADDRESSES that the text has."""
    return tuple(name for name in ADDRESSES if name != "squares" or shape.squares)


def constraints(shape: Shape) -> str:
    """Constraints of the operands, the result first."""
    return ",".join(["=r", *["l"] * len(addresses(shape)), *["r"] * len(VALUES)])


def text(shape: Shape) -> str:
    """The whole step."""
    operand = {name: f"${1 + number}" for number, name in enumerate((*addresses(shape), *VALUES))}
    lines = [
        *_places(operand),
        *_load_state(operand),
        *_load_vectors(shape, operand),
        *_load_gates(shape, operand, range(1)),
        "bar.sync 0",  # ptxas moves loads down to their use, but not across a barrier
        *_load_gates(shape, operand, range(1, _pieces(shape))),
        *_load_squares(shape, operand),
        *_make_vectors(),
        *_small_sums(shape),
        *_load_column(shape, operand),
        "bar.sync 0",
        *_factors(shape),
        *_multiply_state(),
        "bar.sync 0",
        *_window_sum("v"),
        *_finish_columns(),
        "bar.sync 0",
        *_write_ring(shape, operand),
        *_write_output(shape, operand),
        *_write_state(),
    ]
    registers = ".reg .pred real,low,held,early,keeps,wide,last,p; .reg .b16 h0,h1; .reg .b64 g,at,mine,row; "
    words = {name for line in lines for name in _words(line)}
    registers += f".reg .b32 {','.join(sorted(words))}; .shared .align 16 .b8 step[{SHARED_BYTES}]; "
    return "{ " + registers + "; ".join(lines) + "; mov.u32 $0, 0; }"


def _words(line: str) -> set[str]:
    """Names of 32-bit registers in a line: all that begin with an underscore."""
    found = line.replace("{", " ").replace("}", " ").replace("[", " ").replace("]", " ").replace(",", " ")
    return {word.split("+")[0] for word in found.split() if word.startswith("_")}


def _number(value: float) -> str:
    """A float32 constant as PTX writes it."""
    return f"0f{struct.unpack('>I', struct.pack('>f', value))[0]:08X}"


def _places(operand: dict[str, str]) -> list[str]:
    return [
        "mov.u32 _t, %tid.x",
        "and.b32 _lane, _t, 31",
        "shr.u32 _warp, _t, 5",
        f"and.b32 _c, _t, {WIDTH - 1}",
        f"setp.lt.u32 low, _t, {WIDTH}",
        f"setp.ne.s32 real, {operand['real']}, 0",
        f"setp.ne.s32 keeps, {operand['keeps']}, 0",
        f"setp.gt.and.s32 held, {operand['position']}, 0, real",
        "mov.u32 _base, step",
    ]


def _load_state(operand: dict[str, str]) -> list[str]:
    """_s{row}_{column}: zeros where there is nothing before this token."""
    lines = [f"mov.b32 _s{i}_{j}, 0" for i in range(_ROWS) for j in range(4)]
    lines += [
        f"shl.b32 _o, _warp, {(_ROWS * WIDTH * 4).bit_length() - 1}",
        "shl.b32 _p, _lane, 4",
        "add.u32 _o, _o, _p",
        "cvt.u64.u32 g, _o",
        f"add.u64 mine, {operand['state']}, g",
    ]
    return lines + [
        f"@held ld.global.v4.b32 {{{','.join(f'_s{i}_{j}' for j in range(4))}}}, [mine+{i * WIDTH * 4}]"
        for i in range(_ROWS)
    ]


def _load_window(into: str, shape: Shape, operand: dict[str, str]) -> list[str]:
    """Newest input, three earlier ones and four taps of channel _{into}c: _{into}n, _{into}e0 .. 2, _{into}w0 .. 3."""
    lines = [
        f"mul.wide.u32 row, _{into}c, 4",
        f"add.u64 at, {operand['projected']}, row",
        f"ld.global.b32 _{into}n, [at]",
        f"add.u64 at, {operand['ring']}, row",
    ]
    for j in range(CONV_TAPS - 1):
        back = CONV_TAPS - 1 - j
        lines += [
            f"add.u32 _r, {operand['position']}, {CONV_TAPS - back}",
            f"and.b32 _r, _r, {CONV_TAPS - 1}",
            f"mul.wide.u32 g, _r, {4 * shape.channels}",
            "add.u64 g, g, at",
            f"setp.ge.s32 early, {operand['position']}, {back}",
            f"mov.b32 _{into}e{j}, 0",
            f"@early ld.global.b32 _{into}e{j}, [g]",
        ]
    lines.append(f"add.u64 at, {operand['taps']}, row")
    return lines + [f"ld.global.b32 _{into}w{j}, [at+{4 * shape.channels * j}]" for j in range(CONV_TAPS)]


def _load_vectors(shape: Shape, operand: dict[str, str]) -> list[str]:
    """The thread's channel of the query or, in the upper half, of the key."""
    channel = [f"selp.b32 _kc, 0, {shape.keys}, low", f"add.u32 _kc, _kc, {operand['channel']}"]
    return [*channel, "add.u32 _kc, _kc, _c", *_load_window("k", shape, operand)]


def _load_column(shape: Shape, operand: dict[str, str]) -> list[str]:
    """The value's channel, what a column's end needs, and the head's two numbers."""
    return [
        f"add.u32 _vc, {operand['value_channel']}, _c",
        *_load_window("v", shape, operand),
        f"add.u64 at, {operand['projected']}, row",
        f"ld.global.b32 _z, [at+{4 * (shape.channels - 2 * shape.keys)}]",
        "mul.wide.u32 row, _c, 4",
        f"add.u64 at, {operand['gain']}, row",
        "ld.global.b32 _gain, [at]",
        f"ld.global.b32 _alog, [{operand['a_log']}]",
        f"ld.global.b32 _dt, [{operand['dt_bias']}]",
    ]


def _pieces(shape: Shape) -> int:
    """Times that all threads together read 8 columns each of x."""
    return -(-shape.hidden // (8 * THREADS))


def _load_gates(shape: Shape, operand: dict[str, str], pieces: range) -> list[str]:
    """Eight neighbours of x, a and b at a time: _{x,a,b}{piece}_{word}; zeros past the end."""
    lines = ["mul.wide.u32 row, _t, 16"]
    chunks = shape.hidden // 8
    for piece in pieces:
        whole = (piece + 1) * THREADS <= chunks
        guard = "" if whole else "@last "
        if not whole:
            lines.append(f"setp.lt.u32 last, _t, {chunks - piece * THREADS}")
        for short, name, skipped in (("x", "x", 0), ("a", "ab", 0), ("b", "ab", 2 * shape.heads * shape.hidden)):
            targets = [f"_{short}{piece}_{word}" for word in range(4)]
            if not whole:
                lines += [f"mov.b32 {target}, 0" for target in targets]
            lines.append(f"add.u64 at, {operand[name]}, row")
            lines.append(f"{guard}ld.global.v4.b32 {{{','.join(targets)}}}, [at+{16 * THREADS * piece + skipped}]")
    return lines


def _load_squares(shape: Shape, operand: dict[str, str]) -> list[str]:
    if not shape.squares:
        return []
    return [
        *(f"mov.b32 _q{word}, 0" for word in range(4)),
        f"setp.lt.u32 wide, _t, {shape.squares // 4}",
        f"add.u64 at, {operand['squares']}, row",
        "@wide ld.global.v4.b32 {_q0,_q1,_q2,_q3}, [at]",
    ]


def _silu(value: str) -> list[str]:
    """In place: value / (1 + e ** -value)."""
    return [
        f"mul.rn.f32 _e, {value}, {_number(-_LOG2_E)}",
        "ex2.approx.ftz.f32 _e, _e",
        f"add.rn.f32 _e, _e, {_number(1.0)}",
        "rcp.approx.ftz.f32 _e, _e",
        f"mul.rn.f32 {value}, {value}, _e",
    ]


def _window_sum(into: str) -> list[str]:
    lines = [f"mul.rn.f32 _{into}, _{into}n, _{into}w{CONV_TAPS - 1}"]
    lines += [f"fma.rn.f32 _{into}, _{into}e{j}, _{into}w{j}, _{into}" for j in reversed(range(CONV_TAPS - 1))]
    return lines + _silu(f"_{into}")


def _make_vectors() -> list[str]:
    """_k: the query's or key's channel, also in shared memory."""
    return [*_window_sum("k"), "shl.b32 _o, _t, 2", "add.u32 _o, _o, _base", f"st.shared.b32 [_o+{_VECTORS}], _k"]


def _write_ring(shape: Shape, operand: dict[str, str]) -> list[str]:
    """The newest inputs join the ring, in the row that nobody reads."""
    return [
        f"and.b32 _r, {operand['position']}, {CONV_TAPS - 1}",
        f"mul.wide.u32 g, _r, {4 * shape.channels}",
        f"add.u64 at, {operand['ring']}, g",
        "mul.wide.u32 row, _kc, 4",
        "add.u64 g, at, row",
        "and.pred p, keeps, real",
        "@p st.global.b32 [g], _kn",
        "mul.wide.u32 row, _vc, 4",
        "add.u64 g, at, row",
        "and.pred p, low, real",
        "@p st.global.b32 [g], _vn",
    ]


def _unpack(kind: str, word: str, low: str, high: str) -> list[str]:
    if kind == "bf16":
        return [f"shl.b32 {low}, {word}, 16", f"and.b32 {high}, {word}, 0xFFFF0000"]
    return [f"mov.b32 {{h0,h1}}, {word}", f"cvt.f32.f16 {low}, h0", f"cvt.f32.f16 {high}, h1"]


def _sum_lanes(names: Sequence[str], lanes: int = 32) -> list[str]:
    """Each register summed over the warp's lanes, in every lane."""
    lines, step = [], lanes // 2
    while step:
        lines += [f"shfl.sync.bfly.b32 _y{n}, {name}, {step}, 31, 0xFFFFFFFF" for n, name in enumerate(names)]
        lines += [f"add.rn.f32 {name}, {name}, _y{n}" for n, name in enumerate(names)]
        step //= 2
    return lines


def _small_sums(shape: Shape) -> list[str]:
    """Squared lengths, a, b and squares: summed over the warp, left in shared memory."""
    lines = ["mul.rn.f32 _n, _k, _k", "mov.b32 _a, 0", "mov.b32 _b, 0", "mov.b32 _q, 0"]
    for piece in range(_pieces(shape)):
        for word in range(4):
            lines += _unpack(shape.x_type, f"_x{piece}_{word}", "_x0", "_x1")
            for total, short in (("_a", "a"), ("_b", "b")):
                lines += _unpack("bf16", f"_{short}{piece}_{word}", "_w0", "_w1")
                lines += [f"fma.rn.f32 {total}, _x{i}, _w{i}, {total}" for i in range(2)]
    if shape.squares:
        lines += [f"add.rn.f32 _q, _q, _q{word}" for word in range(4)]
    return [
        *lines,
        *_sum_lanes(["_n", "_a", "_b", "_q"]),
        "shl.b32 _o, _warp, 4",
        "add.u32 _o, _o, _base",
        "setp.eq.u32 p, _lane, 0",
        f"@p st.shared.v4.b32 [_o+{_SUMS}], {{_n,_a,_b,_q}}",
    ]


def _factors(shape: Shape) -> list[str]:
    """_decay, _beta, and what query and key are multiplied with: _fq and _fk."""
    lines = []
    for warp in range(_WARPS):
        lines.append(f"ld.shared.v4.b32 {{_n{warp},_a{warp},_b{warp},_q{warp}}}, [_base+{_SUMS + 16 * warp}]")

    def add(target: str, name: str, warps: range) -> list[str]:
        first, *rest = [f"_{name}{warp}" for warp in warps]
        return [f"mov.b32 {target}, {first}", *(f"add.rn.f32 {target}, {target}, {other}" for other in rest)]

    half, every = _WARPS // 2, range(_WARPS)
    lines += add("_fq", "n", range(half)) + add("_fk", "n", range(half, _WARPS)) + add("_a", "a", every)
    lines += add("_b", "b", every)
    for name in ("_fq", "_fk"):
        lines += [f"add.rn.f32 {name}, {name}, {_number(L2_EPSILON)}", f"rsqrt.approx.ftz.f32 {name}, {name}"]
    lines.append(f"mul.rn.f32 _fq, _fq, {_number(WIDTH**-0.5)}")
    if shape.squares:
        lines += add("_q", "q", every)
        lines += [
            f"fma.rn.f32 _q, _q, {_number(1.0 / shape.hidden)}, {_number(shape.x_eps)}",
            "rsqrt.approx.ftz.f32 _q, _q",
            f"mul.rn.f32 _q, _q, {_number(shape.x_scale)}",
        ]
    else:
        lines.append(f"mov.b32 _q, {_number(shape.x_scale)}")
    return [
        *lines,
        "fma.rn.f32 _a, _a, _q, _dt",
        "mul.rn.f32 _b, _b, _q",
        # beta = 1 / (1 + e ** -b)
        f"mul.rn.f32 _beta, _b, {_number(-_LOG2_E)}",
        "ex2.approx.ftz.f32 _beta, _beta",
        f"add.rn.f32 _beta, _beta, {_number(1.0)}",
        "rcp.approx.ftz.f32 _beta, _beta",
        # softplus(a) = max(a, 0) + log(1 + e ** -|a|)
        "abs.f32 _e, _a",
        f"mul.rn.f32 _e, _e, {_number(-_LOG2_E)}",
        "ex2.approx.ftz.f32 _e, _e",
        f"add.rn.f32 _e, _e, {_number(1.0)}",
        "lg2.approx.ftz.f32 _e, _e",
        f"max.f32 _a, _a, {_number(0.0)}",
        f"fma.rn.f32 _a, _e, {_number(_LN_2)}, _a",
        # decay = e ** (-e ** a_log * softplus)
        f"mul.rn.f32 _e, _alog, {_number(_LOG2_E)}",
        "ex2.approx.ftz.f32 _e, _e",
        "mul.rn.f32 _e, _e, _a",
        f"mul.rn.f32 _e, _e, {_number(-_LOG2_E)}",
        "ex2.approx.ftz.f32 _decay, _e",
    ]


def _rows_of(name: str, which: int, first: int) -> str:
    """Four neighbours of the query (0) or key (1), of the warp's rows; _o is the warp's place."""
    targets = ",".join(f"{name}{j}" for j in range(4))
    return f"ld.shared.v4.b32 {{{targets}}}, [_o+{_VECTORS + which * WIDTH * 4 + 4 * first}]"


def _warp_rows() -> list[str]:
    return [f"shl.b32 _o, _warp, {(_ROWS * 4).bit_length() - 1}", "add.u32 _o, _o, _base"]


def _multiply_state() -> list[str]:
    """The warp's rows of the state times query and key, left in shared memory."""
    lines = [f"mov.b32 {name}, 0" for name in ("_m", *(f"_{which}{j}" for which in ("dk", "dq") for j in range(4)))]
    lines += _warp_rows()
    for first in range(0, _ROWS, 4):
        lines += [_rows_of("_qr", 0, first), _rows_of("_kr", 1, first)]
        for i in range(4):
            lines.append(f"fma.rn.f32 _m, _kr{i}, _qr{i}, _m")
            for j in range(4):
                lines.append(f"fma.rn.f32 _dk{j}, _s{first + i}_{j}, _kr{i}, _dk{j}")
                lines.append(f"fma.rn.f32 _dq{j}, _s{first + i}_{j}, _qr{i}, _dq{j}")
    return [
        *lines,
        f"shl.b32 _o, _warp, {(2 * WIDTH * 4).bit_length() - 1}",
        "shl.b32 _p, _lane, 4",
        "add.u32 _o, _o, _p",
        "add.u32 _o, _o, _base",
        f"st.shared.v4.b32 [_o+{_PARTS}], {{_dk0,_dk1,_dk2,_dk3}}",
        f"st.shared.v4.b32 [_o+{_PARTS + WIDTH * 4}], {{_dq0,_dq1,_dq2,_dq3}}",
        "shl.b32 _o, _warp, 2",
        "add.u32 _o, _o, _base",
        "setp.eq.u32 p, _lane, 0",
        f"@p st.shared.b32 [_o+{_MET}], _m",
    ]


def _finish_columns() -> list[str]:
    """A column a thread (the upper half does the same and writes nothing): its change, and _raw, its output."""
    lines = ["shl.b32 _o, _c, 2", "add.u32 _o, _o, _base"]
    lines += [
        f"ld.shared.v4.b32 {{{','.join(f'_m{4 * i + j}' for j in range(4))}}}, [_base+{_MET + 16 * i}]" for i in (0, 1)
    ]
    for warp in range(_WARPS):
        for which, name in enumerate(("_ks", "_qs")):
            lines.append(f"ld.shared.b32 {name}{warp}, [_o+{_PARTS + (2 * warp + which) * WIDTH * 4}]")
    for name in ("_m", "_ks", "_qs"):
        lines.append(f"add.rn.f32 {name}, {name}0, {name}1")
        lines += [f"add.rn.f32 {name}, {name}, {name}{warp}" for warp in range(2, _WARPS)]
    return [
        *lines,
        "mul.rn.f32 _ks, _ks, _decay",
        "mul.rn.f32 _ks, _ks, _fk",
        "sub.rn.f32 _u, _v, _ks",
        "mul.rn.f32 _u, _u, _beta",
        "mul.rn.f32 _u, _u, _fk",  # with the key's factor: both uses want it
        "mul.rn.f32 _raw, _qs, _decay",
        "fma.rn.f32 _raw, _m, _u, _raw",
        "mul.rn.f32 _raw, _raw, _fq",
        f"@low st.shared.b32 [_o+{_CHANGE}], _u",
        "mul.rn.f32 _n, _raw, _raw",
        *_sum_lanes(["_n"]),
        "shl.b32 _o, _warp, 2",
        "add.u32 _o, _o, _base",
        "setp.eq.and.u32 p, _lane, 0, low",
        f"@p st.shared.b32 [_o+{_LENGTH}], _n",
    ]


def _write_output(shape: Shape, operand: dict[str, str]) -> list[str]:
    """Norm, gain and gate of the thread's column; zero for padding."""
    size = 4 if shape.out_type == "f32" else 2
    lines = [
        f"ld.shared.v4.b32 {{_n0,_n1,_n2,_n3}}, [_base+{_LENGTH}]",
        *(f"add.rn.f32 _n0, _n0, _n{warp}" for warp in range(1, 4)),
        f"fma.rn.f32 _n0, _n0, {_number(1.0 / WIDTH)}, {_number(shape.eps)}",
        "rsqrt.approx.ftz.f32 _n0, _n0",
        "mul.rn.f32 _raw, _raw, _n0",
        "mul.rn.f32 _raw, _raw, _gain",
        *_silu("_z"),
        "mul.rn.f32 _raw, _raw, _z",
        f"selp.b32 _raw, _raw, {_number(0.0)}, real",
        f"mul.wide.u32 row, _c, {size}",
        f"add.u64 at, {operand['out']}, row",
    ]
    if shape.out_type == "f32":
        return [*lines, "@low st.global.b32 [at], _raw"]
    if shape.out_type == "f16":
        limit = 65504.0
        lines += [f"min.f32 _raw, _raw, {_number(limit)}", f"max.f32 _raw, _raw, {_number(-limit)}"]
    return [*lines, f"cvt.rn.{shape.out_type}.f32 h0, _raw", "@low st.global.b16 [at], h0"]


def _write_state() -> list[str]:
    """State times decay plus key times change, where there is no padding."""
    lines = ["shl.b32 _p, _lane, 4", "add.u32 _p, _p, _base", f"ld.shared.v4.b32 {{_u0,_u1,_u2,_u3}}, [_p+{_CHANGE}]"]
    lines += _warp_rows()
    for i in range(_ROWS):
        if i % 4 == 0:
            lines.append(_rows_of("_kr", 1, i))
        for j in range(4):
            lines.append(f"mul.rn.f32 _s{i}_{j}, _s{i}_{j}, _decay")
            lines.append(f"fma.rn.f32 _s{i}_{j}, _kr{i % 4}, _u{j}, _s{i}_{j}")
        row = ",".join(f"_s{i}_{j}" for j in range(4))
        lines.append(f"@real st.global.v4.b32 [mine+{i * WIDTH * 4}], {{{row}}}")
    return lines
