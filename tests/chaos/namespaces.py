"""A cluster whose daemons live in network namespaces of their own, joined by a bridge.

The program enters a network and mount namespace of its own first, so nothing of the host's network
is touched. Needs the right to do so (root, or user namespaces with it); `enter` tells when it is
missing.
"""

import ctypes
import os
import subprocess

import chaos

CLONE_NEWNS = 0x00020000
CLONE_NEWNET = 0x40000000
SUBNET = "10.77.0"
BRIDGE = "capstan-br"


def ip(*arguments, check=True):
    return subprocess.run(["ip", *arguments], check=check, capture_output=True, text=True)


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


class NamespaceCluster(chaos.ChaosCluster):
    """The scheduler is in the outer namespace, where the command line runs too."""

    def __init__(self, **settings):
        self.hosts = {}
        super().__init__(**settings)

    def place(self, name):
        if name == "scheduler":
            return {"host": f"{SUBNET}.1"}
        number = len(self.hosts) + 2
        self.hosts[name] = f"{SUBNET}.{number}"
        ip("netns", "add", name)
        ip("link", "add", f"v{number}", "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("link", "set", f"v{number}", "master", BRIDGE, "up")
        ip("-n", name, "addr", "add", f"{self.hosts[name]}/24", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")
        ip("-n", name, "link", "set", "lo", "up")
        return {"host": self.hosts[name], "prefix": ("ip", "netns", "exec", name)}

    def isolate(self, name, cut):
        """Cuts a daemon off from everybody, or joins it again."""
        number = self.hosts[name].rpartition(".")[2]
        ip("link", "set", f"v{number}", "down" if cut else "up")

    def deafen(self, name, to, cut):
        """One-way: what `name` sends to `to` is dropped."""
        target = f"{SUBNET}.1" if to == "scheduler" else self.hosts[to]
        action = "add" if cut else "del"
        ip("-n", name, "route", action, "blackhole", f"{target}/32")
