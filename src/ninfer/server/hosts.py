"""Hosts and origins as requests name them: `localhost:8080`, `[::1]`, `https://a.example`. It knows no header by name.

Invariant: what is read as a host is one by RFC 9110 and DNS, so nothing that compares names has to think of odd forms.
"""

import ipaddress
import re

import attrs

_AUTHORITY = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9_.-]+))(?::([0-9]{0,5}))?", re.ASCII)
_LABEL = re.compile(r"[a-z0-9_-]{1,63}", re.ASCII)
_NAME_CHARS = 253
_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://(.*)", re.ASCII | re.DOTALL)
_DEFAULT_PORTS = {"http": 80, "https": 443}

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


@attrs.frozen
class Host:
    """A name or an address, lower case and without brackets, and the port if one was named."""

    name: str
    port: int | None = None


def read_host(text: str) -> Host | None:
    """The host that a Host header or the authority of a URL names; None if it names none."""
    found = _AUTHORITY.fullmatch(text.strip(" \t").lower())
    if found is None:
        return None
    address, name, port = found.groups()
    if address is not None:
        try:
            name = ipaddress.IPv6Address(address).compressed
        except ValueError:
            return None
    elif len(name) > _NAME_CHARS or not all(map(_LABEL.fullmatch, name.removesuffix(".").split("."))):
        return None
    if port and int(port) > 65535:
        return None
    return Host(name, int(port) if port else None)


def host_name(text: str) -> str | None:
    """The name alone of `a.example`, `a.example:80`, `::1` or `[::1]:80`; None if it is no host."""
    found = read_host(text) or read_host(f"[{text.strip()}]")
    return None if found is None else found.name


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches an address that a socket is bound to, or a name that is one of loopback's."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address.lower() in LOOPBACK_NAMES
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback


@attrs.frozen
class Origin:
    """Where a page, or an application made of pages, comes from."""

    scheme: str
    host: Host | None

    @property
    def is_app(self) -> bool:
        """Whether an installed application sent it: no page of a web site has a scheme of its own."""
        return self.scheme not in ("", "http", "https")

    def is_at(self, asked: Host, names: frozenset[str]) -> bool:
        """Whether it is the server at `asked`, by this name or one of `names`."""
        default = _DEFAULT_PORTS.get(self.scheme)
        if self.host is None or default is None or (self.host.port or default) != (asked.port or default):
            return False
        return self.host.name == asked.name or {self.host.name, asked.name} <= names


def read_origin(text: str) -> Origin:
    """The origin in an Origin header; one without scheme and host for `null`, which hides where a page is from."""
    found = _ORIGIN.fullmatch(text.strip(" \t").lower())
    return Origin("", None) if found is None else Origin(found[1], read_host(found[2]))
