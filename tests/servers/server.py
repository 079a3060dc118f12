"""What the servers of this folder share: their folder, their processes and the end of these, and how they are told of.

Linux only: processes are found in /proc. Nothing but the standard library of Python 3.11.
"""

import argparse
import ctypes
import fcntl
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

# A server that is asked to end and has not by then is killed.
END_SECONDS = 10
# How long a killed script's servers may take to end in order before the watchdog kills them.
WATCHDOG_END_SECONDS = 3
# Longer than the watchdog of a killed predecessor takes.
LOCK_SECONDS = WATCHDOG_END_SECONDS + 3
# The longest path of a Unix socket on Linux, without its closing zero.
SOCKET_PATH_BYTES = 107
# How often a port is chosen again because somebody took it between choosing and listening.
PORT_TRIES = 5

# Of linux/prctl.h.
PR_SET_CHILD_SUBREAPER = 36


class Fault(Exception):
    """A sentence that says what to do; it is printed, and the script exits with 1."""


class PortTaken(Exception):
    """The server could not listen on its port."""


class Group:
    """A process that leads a group of its own, and all that it started."""

    def __init__(self, name, process):
        self.name = name
        self.process = process
        self.id = process.pid

    def pids(self):
        """Those of the group that still run, the leader first."""
        found = []
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                stat = Path("/proc", entry, "stat").read_text()
            except OSError:
                continue
            # The name may hold anything; what follows its bracket is: state, parent, group.
            state, _, group = stat.rpartition(")")[2].split()[:3]
            if int(group) == self.id and state not in "ZX":
                found.append(int(entry))
        return sorted(found, key=lambda pid: (pid != self.id, pid))

    def signal(self, number):
        if self.process.poll() is not None and not self.pids():
            # The number may be somebody else's by now.
            return
        try:
            os.killpg(self.id, number)
        except ProcessLookupError:
            pass

    def end(self, seconds=END_SECONDS):
        self.signal(signal.SIGTERM)
        # One that a test has stopped hears nothing before it continues.
        self.signal(signal.SIGCONT)
        deadline = time.monotonic() + seconds
        while self.pids():
            # Also reaps the leader.
            self.process.poll()
            if time.monotonic() > deadline:
                self.signal(signal.SIGKILL)
            time.sleep(0.02)
        self.process.wait()
        # The workers of a leader that ended before them.
        try:
            while os.waitpid(-self.id, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass


class Processes:
    """The groups that the script started. They end with it, however it ends.

    A watchdog, a small `sh` in a session of its own, holds the read end of a pipe. Each process writes its number there
    before it becomes the server, so none is missed; when the script is gone, the pipe ends, and the watchdog ends them.
    PR_SET_PDEATHSIG would not do: the workers of PHP do not inherit it, and outlive their master.
    """

    WATCHDOG = """
        groups=
        while read -r what group; do
            if [ "$what" = started ]; then groups="$groups $group"; continue; fi
            others=
            for other in $groups; do [ "$other" = "$group" ] || others="$others $other"; done
            groups=$others
        done
        for group in $groups; do kill -TERM "-$group"; kill -CONT "-$group"; done 2>/dev/null
        for try in $(seq TRIES); do
            left=
            for group in $groups; do kill -0 "-$group" 2>/dev/null && left=yes; done
            [ -n "$left" ] || exit 0
            sleep 0.1
        done
        for group in $groups; do kill -KILL "-$group"; done 2>/dev/null
    """.replace("TRIES", str(WATCHDOG_END_SECONDS * 10))

    def __init__(self, folder):
        self.groups = []
        # Orphans become this script's, so that it can bury them: in a container there may be no init that does.
        if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            raise Fault(f"prctl: {os.strerror(ctypes.get_errno())}; these servers need Linux 3.4 or later")
        read, self.pipe = os.pipe()
        self.watchdog = subprocess.Popen(
            ["/bin/sh", "-c", self.WATCHDOG],
            stdin=read,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={"PATH": os.environ.get("PATH", os.defpath)},
            start_new_session=True,
            # The folder is in use until the last server has ended, also when the script has not lived to see it.
            pass_fds=[folder.lock.fileno()],
        )
        os.close(read)

    def start(self, name, arguments, log, **options):
        """Starts a server in a group of its own; `log`, a path, takes what it prints from now on."""

        def enroll():
            os.setsid()
            os.write(self.pipe, b"started %d\n" % os.getpid())

        with open(log, "wb") as output:
            process = subprocess.Popen(
                arguments, stdin=subprocess.DEVNULL, stdout=output, stderr=output, preexec_fn=enroll, **options
            )
        group = Group(name, process)
        self.groups.append(group)
        return group

    def end_one(self, group):
        group.end()
        # Its number may be somebody else's from now on.
        os.write(self.pipe, b"ended %d\n" % group.id)
        self.groups.remove(group)

    def end(self):
        """Ends what was started last first: a site before its database."""
        for group in reversed(self.groups.copy()):
            self.end_one(group)
        # It has nothing left to do, unless a signal came between the start of a process and our knowing of it.
        os.close(self.pipe)
        self.watchdog.wait()


class Folder:
    """Where a server keeps all that it has; one script at a time may use it."""

    def __init__(self, path):
        self.path = Path(path).resolve()
        self.path.mkdir(parents=True, exist_ok=True)
        self.kept_file = self.path / "kept.json"
        self.lock = open(self.path / "lock", "w")
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise Fault(f"{self.path} is in use: end the server there, or name another folder") from None
                time.sleep(0.05)

    def kept(self):
        """What an earlier run has made whole, or None."""
        try:
            return json.loads(self.kept_file.read_text())
        except FileNotFoundError:
            return None

    def keep(self, what):
        """Written last, and at once: whoever finds it finds everything that it speaks of."""
        beside = self.kept_file.with_suffix(".new")
        beside.touch(mode=0o600)
        beside.write_text(json.dumps(what))
        beside.replace(self.kept_file)

    def forget(self, *names):
        """Removes what a run that did not come to its end has left; nothing but what bears these names."""
        for name in names:
            target = self.path / name
            if target.is_dir():
                shutil.rmtree(target)
            else:
                target.unlink(missing_ok=True)


def program(name):
    """Where a program is, also where only root's PATH looks."""
    found = shutil.which(name, path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin")
    if found is None:
        raise Fault(f"{name} is not installed: run .ci/platforms/install as root, on Debian")
    return found


def environment(**more):
    """Settings and proxies of whoever runs this are not the servers'."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8", "TZ": "UTC", "HOME": "/nonexistent", **more}


def free_port(preferred=None):
    """A port of 127.0.0.1 that nobody listens on: the preferred one if it may be had."""
    for port in [preferred, 0] if preferred else [0]:
        with socket.socket() as probe:
            # As the servers do: connections that linger from before are no hindrance.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return probe.getsockname()[1]
    raise Fault("no port of 127.0.0.1 is free")


def on_a_port(preferred, start):
    """Calls `start(port)` until it does not raise PortTaken."""
    for _ in range(PORT_TRIES):
        port = free_port(preferred)
        try:
            return start(port)
        except PortTaken:
            preferred = None
    raise Fault(f"{PORT_TRIES} free ports were taken by others before the server listened; try again")


def listens(group, port):
    """Whether it is this group that listens there, and not another server of the kind that was faster."""
    wanted = f"0100007F:{port:04X}"
    sockets = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, *_, inode = line.split()[:10]
        # 0A is LISTEN.
        if local == wanted and state == "0A":
            sockets.add(f"socket:[{inode}]")
    for pid in group.pids():
        try:
            if any(os.readlink(fd) in sockets for fd in Path("/proc", str(pid), "fd").iterdir()):
                return True
        except OSError:
            # It has ended, or closed that one.
            continue
    return False


def wait_until(what, answers, group, port, seconds, log):
    """Asks `answers()` until it is true; raises when the server ends, or after that many seconds.

    Nobody is asked before the server listens on the port, where there is one.
    """
    deadline = time.monotonic() + seconds
    while not ((port is None or listens(group, port)) and answers()):
        if group.process.poll() is not None:
            told = tail(log)
            if "Address already in use" in told or "EADDRINUSE" in told or "address is already in use" in told:
                raise PortTaken
            raise Fault(f"{what} ended before it answered; its log, {log}, ends with:\n{told}")
        if time.monotonic() > deadline:
            raise Fault(f"{what} does not answer after {seconds} s; its log, {log}, ends with:\n{tail(log)}")
        time.sleep(0.05)


def tail(path, lines=15):
    try:
        return "\n".join(Path(path).read_text(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return ""


class KeepRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


# Neither proxies nor redirects: what answers is the server itself.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), KeepRedirect)


def call(method, url, body=None, headers=None, seconds=30):
    """Returns status, headers and the body: as JSON, or as text when it is not JSON. Raises OSError without an answer."""
    headers = {"accept": "application/json", **(headers or {})}
    data = None
    if body is not None:
        data = json.dumps(body).encode()
        headers["content-type"] = "application/json"
    request = urllib.request.Request(url, data=data, headers=headers, method=method)
    try:
        with _opener.open(request, timeout=seconds) as answer:
            status, told, raw = answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        status, told, raw = error.code, error.headers, error.read()
    text = raw.decode(errors="replace")
    try:
        return status, told, json.loads(text)
    except ValueError:
        return status, told, text


def stay(processes):
    """Until standard input ends, or a server does."""
    while True:
        readable, _, _ = select.select([sys.stdin.fileno()], [], [], 0.5)
        if readable and not os.read(sys.stdin.fileno(), 4096):
            return
        for group in processes.groups:
            if group.process.poll() is not None:
                raise Fault(f"{group.name} ended by itself with {group.process.returncode}")


def main(description, run):
    """Calls `run(folder, port, processes)`, prints what it returns as one line, and stays."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("dir", metavar="DIR", help="the folder of its data, which is made, or used again")
    parser.add_argument("--port", type=int, help="of 127.0.0.1; without it, or where it is taken, a free one")
    arguments = parser.parse_args()

    def leave(*_):
        # Once is enough: what follows must not be cut short by a second signal.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.exit(0)

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, leave)
    processes = None
    try:
        folder = Folder(arguments.dir)
        processes = Processes(folder)
        told = run(folder, arguments.port, processes)
        print(json.dumps(told), flush=True)
        stay(processes)
    except Fault as fault:
        print(fault, file=sys.stderr)
        sys.exit(1)
    except OSError as error:
        # Of a copy of many files, the first that failed: the reason is mostly the same.
        print(error.args[0][0][2] if isinstance(error, shutil.Error) else error, file=sys.stderr)
        sys.exit(1)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if processes is not None:
            processes.end()
