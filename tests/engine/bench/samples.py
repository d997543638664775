"""A small report with round numbers."""

from ninfer.engine.bench.report import (
    Ceilings,
    DecodePoint,
    KernelRow,
    KernelTable,
    PrefillPoint,
    ProgramRow,
    Report,
    Spread,
    SubjectReport,
    Traffic,
)

KERNELS = tuple(KernelRow(name=f"kernel {number}", calls=2, step_us=10, share=0.02) for number in range(50))


def point(*, batch: int, context_tokens: int, step_s: tuple[float, ...], faulty_rounds: int = 0) -> DecodePoint:
    return DecodePoint(
        batch=batch, context_tokens=context_tokens, steps=10, step_s=Spread(step_s), faulty_rounds=faulty_rounds
    )


def subject() -> SubjectReport:
    return SubjectReport(
        recipe="q4",
        kv_format="int8",
        ready_s=3.0,
        traffic=Traffic(weights={"down": 400, "gate_up": 600}, looked_up_bytes=10, token_bytes=4, slot_bytes=50),
        decode=(
            point(batch=1, context_tokens=100, step_s=(0.002, 0.001, 0.003)),
            point(batch=1, context_tokens=500, step_s=(0.003,)),
            point(batch=8, context_tokens=100, step_s=(0.004,), faulty_rounds=2),
        ),
        prefill=(PrefillPoint(tokens=64, chunk_tokens=64, prompt_s=Spread((0.5,)), flops=600),),
        kernels=(
            KernelTable(
                of="decode", rows=tuple(KernelRow(name=f"k{i}", calls=2, step_us=10, share=0.02) for i in range(50))
            ),
        ),
        programs=(ProgramRow(name="decode 1", compile_s=1.5, workspace_bytes=7, aliased_bytes=9),),
    )


def report() -> Report:
    return Report(
        date="2026-11-30",
        device="a device",
        jax_version="0.11.2",
        command="python -m ninfer bench",
        config="27b",
        parameters=27_000_000,
        ceilings=Ceilings(read_bytes=1000, read_s=Spread((0.001,)), gemm_shape=(2, 3, 4), gemm_s=Spread((0.1,))),
        subjects=(subject(),),
    )
