"""A cluster whose daemons live in network namespaces of their own, joined by a bridge.

The bridge is the switch of a small network: cables are pulled from it (`isolate`), and packets that
cross it are dropped, for two hosts or at random, or slowed down.

The program enters a network and mount namespace of its own first, so nothing of the host's network
is touched. Needs the right to do so (root, or user namespaces with it); `enter` tells when it is
missing.
"""

import ctypes
import os
import shutil
import subprocess

import chaos

CLONE_NEWNS = 0x00020000
CLONE_NEWNET = 0x40000000
SUBNET = "10.77.0"
BRIDGE = "capstan-br"
FILTER = "capstan"
# Both chains of the bridge see every packet from one host to another, and none that a host sends to
# itself.
RULES = f"""
table bridge {FILTER} {{
  set cut {{
    type ipv4_addr . ipv4_addr
  }}
  chain cuts {{
    type filter hook forward priority 0
    ip saddr . ip daddr @cut drop
  }}
  chain loss {{
    type filter hook forward priority 1
  }}
}}
"""


# Where Debian has programs of the administrator, which a test's PATH may lack.
_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def _program(name):
    found = shutil.which(name, path=_PATH)
    if found is None:
        raise FileNotFoundError(f"{name} is not in {_PATH}")
    return found


def ip(*arguments, check=True):
    return subprocess.run(["ip", *arguments], check=check, capture_output=True, text=True)


def tc(*arguments):
    subprocess.run([_program("tc"), *arguments], check=True, capture_output=True, text=True)


def nft(commands):
    subprocess.run([_program("nft"), "-f", "-"], input=commands, check=True, capture_output=True,
                   text=True)


def _unshare(flags, what):
    """Enters fresh namespaces with mounts that the host does not see. Returns why not, or None."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS | flags) != 0:
        return f"{what} are not allowed here: {os.strerror(ctypes.get_errno())}"
    try:
        subprocess.run(["mount", "--make-rprivate", "/"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return _refused(what, error)
    return None


def _refused(what, error):
    said = getattr(error, "stderr", "") or str(error)
    said = said.decode() if isinstance(said, bytes) else said
    return f"{what} are not allowed here: {said.strip()}"


def enter_mounts():
    """Enters a fresh mount namespace in which a tmpfs can be mounted. Returns why not, or None."""
    what = "mounts"
    refused = _unshare(0, what)
    if refused:
        return refused
    try:
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/mnt"], check=True, capture_output=True)
        subprocess.run(["umount", "/mnt"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return _refused(what, error)
    return None


def enter():
    """Enters fresh namespaces with a bridge. Returns why not, or None."""
    what = "network namespaces"
    refused = _unshare(CLONE_NEWNET, what)
    if refused:
        return refused
    try:
        os.makedirs("/run/netns", exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run/netns"], check=True,
                       capture_output=True)
        ip("link", "set", "lo", "up")
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("addr", "add", f"{SUBNET}.1/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
    except (OSError, subprocess.CalledProcessError) as error:
        return _refused(what, error)
    return None


def enter_filtered():
    """Enters namespaces whose packets to each other can be filtered. Returns why not, or None."""
    refused = enter()
    if refused:
        return refused
    try:
        nft(RULES)
    except FileNotFoundError:
        return "packet filters are not allowed here: nft is missing (Debian's package nftables)"
    except (OSError, subprocess.CalledProcessError) as error:
        return _refused("packet filters", error)
    return None


class Hosts:
    """A base class, beside cluster.Cluster, that puts each daemon on a host of its own. The command
    line runs on the scheduler's host, so it reaches the scheduler whatever is cut."""

    def __init__(self, **settings):
        self.hosts = {}
        super().__init__(**settings)

    def host_of(self, name):
        """The address that a daemon has, or gets next."""
        return self.hosts.get(name, f"{SUBNET}.{len(self.hosts) + 2}")

    def place(self, name):
        self.hosts[name] = self.host_of(name)
        number = self._number(name)
        ip("netns", "add", name)
        ip("link", "add", f"v{number}", "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("link", "set", f"v{number}", "master", BRIDGE, "up")
        ip("-n", name, "addr", "add", f"{self.hosts[name]}/24", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")
        ip("-n", name, "link", "set", "lo", "up")
        inside = ("ip", "netns", "exec", name)
        if name == "scheduler":
            self.cli_prefix = inside
        return {"host": self.hosts[name], "prefix": inside}

    def _number(self, name):
        return self.hosts[name].rpartition(".")[2]

    def _port(self, name):
        """The bridge's end of a host's cable."""
        return f"v{self._number(name)}"

    def isolate(self, name, cut):
        """Pulls a host's only cable, or plugs it in again."""
        ip("link", "set", self._port(name), "down" if cut else "up")

    def deafen(self, name, to, cut):
        """One-way: what `name` sends to `to` is dropped."""
        action = "add" if cut else "del"
        ip("-n", name, "route", action, "blackhole", f"{self.hosts[to]}/32")

    # ---- after enter_filtered()

    def cut_link(self, one, other, cut):
        """Both ways: what two hosts send to each other is dropped, or not any more."""
        a, b = self.hosts[one], self.hosts[other]
        nft(f"{'add' if cut else 'delete'} element bridge {FILTER} cut {{ {a} . {b}, {b} . {a} }}")

    def lose(self, percent):
        """Drops so many of 100 packets between any two hosts, at random; 0: none."""
        nft(f"flush chain bridge {FILTER} loss")
        if percent:
            condition = f"ether type ip numgen random mod 100 < {percent}"
            nft(f"add rule bridge {FILTER} loss {condition} drop")

    def limit_bandwidth(self, rate):
        """Each host receives at most `rate` (as tc writes it: "50mbit"); None: ends that."""
        for name in self.hosts:
            port = ("dev", self._port(name), "root")
            if rate:
                tc("qdisc", "replace", *port, "tbf", "rate", rate, "burst", "64kb",
                   "latency", "50ms")
            else:
                tc("qdisc", "del", *port)


class NamespaceCluster(Hosts, chaos.ChaosCluster):
    """A ChaosCluster of such hosts."""
