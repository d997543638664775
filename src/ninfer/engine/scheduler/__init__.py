"""What to run next: lanes, admission, pages for each unit, pause and replay. Pure Python, driven by a fake in tests."""

from ninfer.engine.scheduler.job import UNPACED, Job, Pacing
from ninfer.engine.scheduler.plan import DecodeStep, Note, PrefillStep, Settled, StepPlan
from ninfer.engine.scheduler.scheduler import Scheduler

__all__ = ["UNPACED", "DecodeStep", "Job", "Note", "Pacing", "PrefillStep", "Scheduler", "Settled", "StepPlan"]
