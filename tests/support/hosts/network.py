"""Hosts on one network, made of network namespaces, each with its own address.

Every host hangs by one cable on a switch, which is a namespace too. Nothing touches the network of
the machine that runs the tests: several runs do not meet, and all is gone with the namespaces.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Self

from tests.support.needs import require

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from tests.support.processes.programs import Program
    from tests.support.world.commands import Campaign

_NETWORK: Final = "10.77.0"
_BRIDGE: Final = "bridge"
#: Would lead requests out of the namespace.
_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def require_hosts() -> None:
    """Go on if hosts can be made here; else skip, or fail where nothing may be skipped."""
    require(os.geteuid() == 0, "root, for network namespaces")
    for tool in ("ip", "tc", "iptables"):
        require(shutil.which(tool) is not None, f"the command {tool}")
    name = f"pate-probe-{os.getpid()}-{secrets.token_hex(2)}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    require(made.returncode == 0, "the right to make network namespaces")
    _does("ip", "netns", "del", name)


@dataclass(frozen=True)
class Host:
    """One machine."""

    name: str  # on this network
    address: str  # its IPv4 address
    namespace: str  # what the kernel calls it here
    switch: str  # the namespace at the other end of its cable

    @property
    def prefix(self) -> tuple[str, ...]:
        """Goes before a command that is to run there; the process keeps its id."""
        names = (n for proxy in _PROXIES for n in (proxy, proxy.lower()))
        without = [part for name in names for part in ("-u", name)]
        return (*_within(self.namespace), "env", *without)

    def run(self, *command: str) -> str:
        """Run a short command there; return what it prints."""
        return _does(*_within(self.namespace), *command)

    def reaches(self, peer: Host, port: int) -> bool:
        """Say whether a TCP connection to a port of ``peer`` comes about."""
        tried = subprocess.run(
            [*_within(self.namespace), "bash", "-c", f"exec 3<>/dev/tcp/{peer.address}/{port}"],
            check=False,
            capture_output=True,
            timeout=60,
        )
        return tried.returncode == 0

    def pull_cable(self) -> None:
        """Cut its link: nothing comes or goes, and neither end gets an end of its connections."""
        _does(*_within(self.switch), "ip", "link", "set", self.name, "down")

    def plug_cable(self) -> None:
        """Bring its link up again."""
        _does(*_within(self.switch), "ip", "link", "set", self.name, "up")

    def worsen(self) -> str:
        """Make its link slow and lossy, both ways; return how, in words.

        By netem where the kernel has it: 100 ms of delay, spread by 20 ms, 5 % loss. Else a link of
        256 kbit/s with a queue, and a filter that drops 5 % of the packets.
        """
        ends = ((self.namespace, "eth0"), (self.switch, self.name))
        netem = ("netem", "delay", "100ms", "20ms", "loss", "5%")
        slow = ("tbf", "rate", "256kbit", "burst", "3kb", "latency", "500ms")
        try:
            for where, link in ends:
                _does(*_within(where), "tc", "qdisc", "add", "dev", link, "root", *netem)
        except subprocess.CalledProcessError:
            for where, link in ends:
                _does(*_within(where), "tc", "qdisc", "add", "dev", link, "root", *slow)
            drop = ("-m", "statistic", "--mode", "random", "--probability", "0.05", "-j", "DROP")
            self.run("iptables", "-A", "INPUT", "-i", "eth0", *drop)
            self.run("iptables", "-A", "OUTPUT", "-o", "eth0", *drop)
            return "256 kbit/s, 5 % loss"
        return "100 ms delay, 5 % loss"

    def dropped(self) -> int:
        """Return how many packets :meth:`worsen` has dropped at its filters or its end of netem."""
        shown = self.run("tc", "-s", "qdisc", "show", "dev", "eth0")
        count = int(shown.partition("(dropped ")[2].partition(",")[0])
        for line in self.run("iptables", "-vnxL").splitlines():
            parts = line.split()
            count += int(parts[0]) if "DROP" in parts and parts[0].isdecimal() else 0
        return count

    def connections(self, peer: Host) -> int:
        """Return how many TCP connections to ``peer`` are established, as this end sees it."""
        shown = self.run("cat", "/proc/net/tcp")
        wanted = "".join(f"{int(part):02X}" for part in reversed(peer.address.split(".")))
        rows = [line.split() for line in shown.splitlines()[1:]]
        return sum(row[2].startswith(wanted + ":") and row[3] == "01" for row in rows)

    def resent(self) -> int:
        """Return how many TCP segments it has sent again so far."""
        return self.counted()["TcpRetransSegs"]

    def counted(self) -> dict[str, int]:
        """Return what the kernel has counted there, of IPv4 and of IPv6 by the same names."""
        rows = [line.split() for line in self.run("cat", "/proc/net/snmp").splitlines()]
        found = {
            names[0].rstrip(":") + name: int(value)
            for names, values in zip(rows[::2], rows[1::2], strict=True)
            for name, value in zip(names[1:], values[1:], strict=True)
        }
        six = self.run("bash", "-c", "[ ! -e /proc/net/snmp6 ] || cat /proc/net/snmp6")
        return found | {name: int(value) for name, value in map(str.split, six.splitlines())}


@dataclass
class Network:
    """Hosts on one switch; a context manager that leaves nothing behind."""

    names: tuple[str, ...]
    _tag: str = field(default_factory=lambda: f"pate-{os.getpid()}-{secrets.token_hex(3)}")
    _made: list[str] = field(default_factory=list)
    hosts: dict[str, Host] = field(default_factory=dict)

    def __enter__(self) -> Self:
        try:
            switch = self._namespace("switch")
            _does(*_within(switch), "ip", "link", "add", _BRIDGE, "type", "bridge")
            _does(*_within(switch), "ip", "link", "set", _BRIDGE, "up")
            for number, name in enumerate(self.names, 1):
                self.hosts[name] = self._host(name, f"{_NETWORK}.{number}", switch)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    def _namespace(self, name: str) -> str:
        namespace = f"{self._tag}-{name}"
        _does("ip", "netns", "add", namespace)
        self._made.append(namespace)
        _does(*_within(namespace), "ip", "link", "set", "lo", "up")
        return namespace

    def _host(self, name: str, address: str, switch: str) -> Host:
        namespace = self._namespace(name)
        # Made within: links of these names never appear in the network of this machine.
        _does(
            *_within(switch), "ip", "link", "add", name, "type", "veth",
            "peer", "name", "eth0", "netns", namespace,
        )  # fmt: skip
        _does(*_within(switch), "ip", "link", "set", name, "master", _BRIDGE, "up")
        _does(*_within(namespace), "ip", "address", "add", f"{address}/24", "dev", "eth0")
        _does(*_within(namespace), "ip", "link", "set", "eth0", "up")
        return Host(name, address, namespace, switch)

    def _remove(self) -> None:
        while self._made:
            _does("ip", "netns", "del", self._made.pop())


@dataclass
class Spread:
    """A campaign whose programs run on the hosts of a network."""

    campaign: Campaign
    network: Network

    def on(self, host: str) -> Campaign:
        """Return the campaign as seen from a host: what it starts, runs there."""
        return replace(self.campaign, prefix=self.network[host].prefix)

    def script(self, host: str, file: Path, *arguments: str | Path) -> Program:
        """Start a Python script on a host."""
        return self.on(host).run(file.stem, f"tests.support.hosts.{file.stem}", *arguments)


def _within(namespace: str) -> tuple[str, ...]:
    return ("ip", "netns", "exec", namespace)


def _does(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
