"""The one request path: capacity, prompt, sampler, engine, reply, deadlines. No wire names, no device arrays."""

from ninfer.service.host import ProtocolFlags, ProtocolHost, ServiceHost
from ninfer.service.sampling import SamplerRules
from ninfer.service.scripted import ScriptedPreparer
from ninfer.service.service import Service, ServiceSettings
from ninfer.service.thinking import ThinkingRules

__all__ = [
    "ProtocolFlags",
    "ProtocolHost",
    "SamplerRules",
    "ScriptedPreparer",
    "Service",
    "ServiceHost",
    "ServiceSettings",
    "ThinkingRules",
]
